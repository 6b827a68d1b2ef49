"""A hash of the kernel library's sources, to compare a built library with the present sources, and the flags by which
every compiler rounds alike.

`setup.py` runs this file by itself, before the package is there; it needs the standard library alone.
"""

import hashlib
import os
import re
import subprocess
import sysconfig
from pathlib import Path

#: Where the sources are.
NATIVE = Path(__file__).parent / "native"


def fingerprint(folder: Path = NATIVE) -> str:
    """Of the names and contents of all headers and C files."""
    state = hashlib.sha256()
    for path in sorted(folder.glob("*.[ch]")):
        state.update(b"%s\0%d\0" % (path.name.encode(), path.stat().st_size) + path.read_bytes())
    return state.hexdigest()[:16]


def contraction(compiler: list[str]) -> list[str]:
    """Flags by which a statement `sum += a * b` is one instruction, and products of other statements are rounded.

    clang and gcc 14 have an option for that. Earlier versions of gcc contract across statements too, which HG_ROUNDED
    forbids where it matters; from 13 on they leave a chain of sums out unless told otherwise, and products then take
    two instructions for one.
    """
    macros = _macros(compiler)
    version = re.search(r"^#define __GNUC__ (\d+)$", macros, re.MULTILINE)
    if "#define __clang__ " in macros or (version and int(version[1]) >= 14):
        return ["-ffp-contract=on"]
    return ["--param=avoid-fma-max-bits=0"] if version and int(version[1]) >= 9 else []


def left_out(compiler: list[str], paths: str) -> list[tuple[str, str]]:
    """Macros that leave out vector paths. paths: native (the widest of this processor alone), runnable (all of this
    processor), else none are left out.
    """
    macros = _macros([*compiler, "-march=native"])
    runs = {"AVX512": all(f"#define __AVX512{part}__ " in macros for part in ("F", "BW", "DQ", "VL"))}
    runs["AVX2"] = all(f"#define __{part}__ " in macros for part in ("AVX2", "FMA", "F16C"))
    runnable = [*(name for name, present in runs.items() if present), "BASELINE"]
    wanted = {"native": runnable[:1], "runnable": runnable}.get(paths, [*runs, "BASELINE"])
    return [(f"HG_WITHOUT_{name}", "1") for name in (*runs, "BASELINE") if name not in wanted]


def cached(compiler: list[str], macros: list[tuple[str, str]], flags: list[str]) -> Path | None:
    """Where the library of the present sources lies, once this compiler has made it; None without a compiler."""
    version = _run([*compiler, "--version"])
    if not version:
        return None
    state = f"{fingerprint()} {compiler} {version} {macros} {flags} {sysconfig.get_config_var('EXT_SUFFIX')}"
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(os.environ.get("HPCGNN_BUILD_CACHE") or Path(caches, "hpcgnn"))
    return folder / f"kernels-{hashlib.sha256(state.encode()).hexdigest()[:16]}.so"


def _macros(compiler: list[str]) -> str:
    """The macros that the compiler defines; none without a compiler, as is said where one is needed."""
    return _run([*compiler, "-dM", "-E", "-x", "c", os.devnull])


def _run(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, errors="replace").stdout
    except OSError:
        return ""
