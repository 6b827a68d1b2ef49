"""The kernel library built with AddressSanitizer and UndefinedBehaviorSanitizer. Pytest uses it in place of the
installed one: `-p sanitized`, for `test_sanitized.py`.

Of the baseline and AVX2 paths only the widest is built, for it has the templates of the narrower units as well. The
AVX-512 path is built where the processor has it. Both are compiled at -O0: compiled as they are installed, all paths
take ten minutes with sanitizers. The other paths are empty tables.
"""

import os
import platform
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hpcgnn.kernels import library
from hpcgnn.kernels.interface import VECTOR_PATHS
from hpcgnn.kernels.sources import NATIVE, fingerprint

LIBRARY = "HPCGNN_SANITIZED_LIBRARY"
# Checks left out: null and size of objects, which AddressSanitizer sees; of pointers' arithmetic. They double the
# compile time.
SANITIZERS = (
    "-fsanitize=address,undefined -fno-sanitize=null,object-size,pointer-overflow -fno-sanitize-recover=all".split()
)
FLAGS = "-std=gnu11 -O0 -g1 -fPIC -fopenmp -fvisibility=hidden -Wno-unknown-pragmas -fno-omit-frame-pointer".split()
FLAGS.append(f'-DHG_SOURCES="{fingerprint()}"')
EMPTY = '#include "table.h"\n'
EMPTY_PATH = "const hg_kernels hg_kernels_{0} = {{0}};\n"  # the tables of its types are not asked for then


def paths():
    """The vector paths that are built: the widest up to AVX2, and AVX-512."""
    flags = set(Path("/proc/cpuinfo").read_text().split()) if platform.machine() == "x86_64" else set()
    wide = ["avx512"] if {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= flags else []
    return ["avx2" if {"avx2", "fma"} <= flags else "baseline", *wide]


def runtime(compiler="gcc"):
    """The libraries to load before Python, for LD_PRELOAD; None where the compiler has no AddressSanitizer. It looks
    for the C++ library's way to throw when it starts, and Python alone does not load that.
    """
    found = []
    for name in ("libasan.so", "libstdc++.so.6"):
        try:
            said = subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True).stdout.strip()
        except OSError:
            return None
        if not os.path.isabs(said):
            return None
        found.append(said)
    return " ".join(found)


def linked(command, sources, result, link):
    """Compile the sources into the folder of `result`, one on each core, and link them; returns the library's path."""
    objects = [result.with_name(f"{file.stem}.o") for file in sources]

    def compiled(source, target):
        subprocess.run([*command, "-c", source, "-o", target], check=True)

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(pool.map(compiled, sources, objects))
    subprocess.run([link[0], *objects, *link[1:], "-o", result], check=True)
    return result


def build(folder, compiler="gcc"):
    """Compile the library into `folder`, a source on each core; returns its path."""
    others = [name for name in VECTOR_PATHS if name not in paths()]
    if platform.machine() != "x86_64":
        others = []  # there is the baseline alone
    (folder / "empty.c").write_text(EMPTY + "".join(EMPTY_PATH.format(name) for name in others))
    sources = [
        file for file in NATIVE.glob("*.c") if not file.stem.startswith(tuple(f"path_{name}" for name in others))
    ]
    # The largest first.
    sources = sorted(sources, key=lambda file: not file.stem.startswith("path_")) + [folder / "empty.c"]
    command, link = [compiler, *FLAGS, *SANITIZERS, "-I", NATIVE], [compiler, "-shared", "-fopenmp", *SANITIZERS]
    return linked(command, sources, folder / "sanitized.so", [*link, "-lm"])


def serve():
    """From now on this library serves."""
    library.use(library.choose(Path(os.environ[LIBRARY])))


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests():
    """For pytest -p sanitized: this library serves, before conftest.py asks which does."""
    serve()
