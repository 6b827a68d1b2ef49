"""Compiles the kernel library; all metadata is in setup.cfg.

The library is plain C with OpenMP, loaded with ctypes: no Python or torch headers are used. It is an *optional*
extension: where there is no compiler the installation still succeeds, and the package falls back to its pure-torch
reference with a warning. No -march=native: a login node compiles, compute nodes of other kinds run; the library
contains every vector path and chooses when it is loaded. It carries a hash of its sources, which is compared with
theirs then: after a change it must be built again.

A library is compiled once for its sources, flags and compiler. It lies in HPCGNN_BUILD_CACHE (default: hpcgnn in
XDG_CACHE_HOME or ~/.cache), from where other builds copy it. HPCGNN_VECTOR_PATHS=native compiles the widest vector path
of this processor alone, in a third of the time, and runnable all that it can run, for a machine that runs what it
compiles.
"""

import contextlib
import os
import runpy
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

HERE = Path(__file__).parent
NATIVE = Path("hpcgnn", "kernels", "native")
COMPILING = runpy.run_path(str(HERE / NATIVE.with_name("sources.py")))


def files(pattern: str) -> list[str]:
    return sorted(str(path.relative_to(HERE)) for path in (HERE / NATIVE).glob(pattern))


class SideBySide(build_ext):
    """Compiles the files of the library side by side, on all cores of this process, or copies what was compiled before.
    One after another they take two minutes.
    """

    def build_extension(self, extension: Extension) -> None:
        compiler, paths = self.compiler.compiler_so, os.environ.get("HPCGNN_VECTOR_PATHS", "all")
        extension.extra_compile_args += COMPILING["contraction"](compiler)
        extension.define_macros += COMPILING["left_out"](compiler, paths)
        cached = COMPILING["cached"](compiler, extension.define_macros, extension.extra_compile_args)
        library = Path(self.get_ext_fullpath(extension.name))
        if cached is not None and cached.exists():
            library.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(cached, library)
            return
        self.force = True  # what lies in build/ may have other flags, which the date of a file does not show
        self._compile(extension)
        if cached is not None and library.exists():
            with contextlib.suppress(OSError):  # a cache that cannot be written is none
                cached.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(library, part := cached.with_suffix(f".{os.getpid()}"))
                part.rename(cached)

    def _compile(self, extension: Extension) -> None:
        one_after_another = self.compiler.compile

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
            define_macros=[("HG_SOURCES", f'"{COMPILING["fingerprint"]()}"')],
            extra_compile_args=["-std=gnu11", "-O3", "-g0", "-fopenmp", "-fvisibility=hidden", "-Wno-unknown-pragmas"],
            extra_link_args=["-fopenmp", "-lm"],
            optional=True,
        )
    ],
)
