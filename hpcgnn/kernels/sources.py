"""A hash of the kernel library's sources, to compare a built library with the present sources.

`setup.py` runs this file by itself, before the package is there; it needs the standard library alone.
"""

import hashlib
from pathlib import Path

#: Where the sources are.
NATIVE = Path(__file__).parent / "native"


def fingerprint(folder: Path = NATIVE) -> str:
    """Of the names and contents of all headers and C files."""
    state = hashlib.sha256()
    for path in sorted(folder.glob("*.[ch]")):
        state.update(b"%s\0%d\0" % (path.name.encode(), path.stat().st_size) + path.read_bytes())
    return state.hexdigest()[:16]
