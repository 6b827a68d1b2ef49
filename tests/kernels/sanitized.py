"""The kernel library built with AddressSanitizer and UndefinedBehaviorSanitizer, and pytest with that library in place
of the installed one: `-p sanitized`, for `test_sanitized.py`.

Only the widest of the baseline and AVX2 paths is built, for it has the templates of the narrower units as well, and at
-O0: compiled as they are installed, all paths take ten minutes with sanitizers. The other paths are empty tables.
"""

import os
import platform
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hpcgnn.kernels import library

NATIVE = Path(library.__file__).parent / "native"
LIBRARY = "HPCGNN_SANITIZED_LIBRARY"
PATHS = ("baseline", "avx2", "avx512")
# Checks left out: null and size of objects, which AddressSanitizer sees; of pointers' arithmetic. They double the
# compile time.
SANITIZERS = (
    "-fsanitize=address,undefined -fno-sanitize=null,object-size,pointer-overflow -fno-sanitize-recover=all".split()
)
FLAGS = "-std=gnu11 -O0 -g1 -fPIC -fopenmp -fvisibility=hidden -Wno-unknown-pragmas -fno-omit-frame-pointer".split()
EMPTY = '#include "hg.h"\n#include "attention.h"\n'
EMPTY_PATH = "const hg_kernels hg_kernels_{0} = {{0}};\nconst hg_attention_kernels hg_attention_{0}[2] = {{{{0}}}};\n"


def path():
    """The vector path that is built."""
    processor = Path("/proc/cpuinfo").read_text() if platform.machine() == "x86_64" else ""
    return "avx2" if " avx2 " in processor and " fma " in processor else "baseline"


def runtime(compiler="gcc"):
    """What is to be loaded before Python, for LD_PRELOAD; None where the compiler has no AddressSanitizer. It looks
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


def build(folder, compiler="gcc"):
    """Compile the library into `folder`, a source on each core; returns its path."""
    others = [name for name in PATHS if name != path() and (name == "baseline" or platform.machine() == "x86_64")]
    (folder / "empty.c").write_text(EMPTY + "".join(EMPTY_PATH.format(name) for name in others))
    left_out = {f"{kind}_{name}" for kind in ("path", "attention") for name in others}
    sources = [file for file in NATIVE.glob("*.c") if file.stem not in left_out]
    # The largest first.
    sources = sorted(sources, key=lambda file: not file.stem.endswith(path())) + [folder / "empty.c"]
    objects = [folder / f"{file.stem}.o" for file in sources]

    def compiled(source, target):
        command = [compiler, *FLAGS, *SANITIZERS, "-I", NATIVE, "-c", source, "-o", target]
        subprocess.run(command, check=True)

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(pool.map(compiled, sources, objects))
    result = folder / "sanitized.so"
    subprocess.run([compiler, "-shared", "-fopenmp", *SANITIZERS, *objects, "-o", result, "-lm"], check=True)
    return result


def pytest_configure(config):
    """For pytest -p sanitized: the package loads this library."""
    library._file = lambda: Path(os.environ[LIBRARY])
