"""Compiles the kernel library; all metadata is in setup.cfg.

The library is plain C with OpenMP, loaded with ctypes: no Python or torch headers are used. It is an *optional*
extension: where there is no compiler the installation still succeeds, and the package falls back to its pure-torch
reference with a warning. No -march=native: a login node compiles, compute nodes of other kinds run; the library
contains every vector path and chooses when it is loaded. It carries a hash of its sources, which is compared with
theirs then: after a change it must be built again.
"""

import os
import re
import runpy
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

HERE = Path(__file__).parent
NATIVE = Path("hpcgnn", "kernels", "native")
SOURCES = runpy.run_path(str(HERE / NATIVE.with_name("sources.py")))["fingerprint"]()


def files(pattern: str) -> list[str]:
    return sorted(str(path.relative_to(HERE)) for path in (HERE / NATIVE).glob(pattern))


def contraction(compiler: list[str]) -> list[str]:
    """Flags by which a statement `sum += a * b` is one instruction, and products of other statements are rounded.

    clang and gcc 14 have an option for that. Earlier versions of gcc contract across statements too, which HG_ROUNDED
    forbids where it matters; from 13 on they leave a chain of sums out unless told otherwise, and products then take
    two instructions for one.
    """
    try:
        asked = [*compiler, "-dM", "-E", "-x", "c", os.devnull]
        macros = subprocess.run(asked, capture_output=True, text=True, errors="replace").stdout
    except OSError:  # no compiler, as is said where one is needed
        return []
    version = re.search(r"^#define __GNUC__ (\d+)$", macros, re.MULTILINE)
    if "#define __clang__ " in macros or (version and int(version[1]) >= 14):
        return ["-ffp-contract=on"]
    return ["--param=avoid-fma-max-bits=0"] if version and int(version[1]) >= 9 else []


class SideBySide(build_ext):
    """Compiles the files of the library side by side, on all cores of this process: one after another they take a
    minute.
    """

    def build_extension(self, extension: Extension) -> None:
        one_after_another = self.compiler.compile
        extension.extra_compile_args += contraction(self.compiler.compiler_so)

        def side_by_side(sources: list[str], **options: object) -> list[str]:
            with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
                made = pool.map(lambda source: one_after_another([source], **options), sources)
                return [path for paths in made for path in paths]

        self.compiler.compile = side_by_side
        try:
            super().build_extension(extension)
        finally:
            self.compiler.compile = one_after_another


setup(
    cmdclass={"build_ext": SideBySide},
    ext_modules=[
        Extension(
            "hpcgnn.kernels._native",
            sources=files("*.c"),
            depends=files("*.h"),
            define_macros=[("HG_SOURCES", f'"{SOURCES}"')],
            extra_compile_args=["-std=gnu11", "-O3", "-g0", "-fopenmp", "-fvisibility=hidden", "-Wno-unknown-pragmas"],
            extra_link_args=["-fopenmp", "-lm"],
            optional=True,
        )
    ],
)
