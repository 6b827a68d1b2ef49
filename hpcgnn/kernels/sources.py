"""A hash of the kernel library's sources, to compare a built library with the present sources, and the flags by which
every compiler rounds alike.

`setup.py` runs this file by itself, before the package is there; it needs the standard library alone.
"""

import hashlib
import os
import re
import subprocess
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
    try:
        asked = [*compiler, "-dM", "-E", "-x", "c", os.devnull]
        macros = subprocess.run(asked, capture_output=True, text=True, errors="replace").stdout
    except OSError:  # no compiler, as is said where one is needed
        return []
    version = re.search(r"^#define __GNUC__ (\d+)$", macros, re.MULTILINE)
    if "#define __clang__ " in macros or (version and int(version[1]) >= 14):
        return ["-ffp-contract=on"]
    return ["--param=avoid-fma-max-bits=0"] if version and int(version[1]) >= 9 else []
