"""Compressed files: gzip is read where the name says so. All else gets one line with the command that unpacks it."""

import shlex
from pathlib import Path

from hpcgnn.errors import FormatError

#: The first bytes of a packed file: its kind, suffix and the command that unpacks it.
_PACKED = {
    b"\x1f\x8b": ("gzip", ".gz", "gunzip -k"),
    b"BZh": ("bzip2", ".bz2", "bunzip2 -k"),
    b"\xfd7zXZ": ("xz", ".xz", "unxz -k"),
    b"\x28\xb5\x2f\xfd": ("zstd", ".zst", "unzstd"),
}
_ZIP = b"PK\x03\x04"


def refuse_packed(path: Path) -> None:
    """FormatError for a file that is packed by another program than gzip, or whose name does not say what it is."""
    if not path.is_file():
        return
    with open(path, "rb") as file:
        start = file.read(8)
    kind, suffix, command = next((_PACKED[first] for first in _PACKED if start.startswith(first)), ("", "", ""))
    name = shlex.quote(str(path))
    if path.suffix == ".zip" and start.startswith(_ZIP):
        raise FormatError(f"{path} is an archive of zip, which is not read; unpack it: unzip {name}")
    if kind == "gzip" and path.suffix not in (".gz", ".tgz"):
        raise FormatError(f"{path} is compressed by gzip; its name must say so: mv {name} {shlex.quote(f'{path}.gz')}")
    if kind and kind != "gzip":
        renamed = "" if path.suffix == suffix else f"mv {name} {shlex.quote(str(path) + suffix)}; "
        packed = name if path.suffix == suffix else shlex.quote(str(path) + suffix)
        raise FormatError(
            f"{path} is compressed by {kind}, and only gzip is read; unpack it: {renamed}{command} {packed}"
        )
    if path.suffix == ".gz" and not kind and start:
        raise FormatError(
            f"{path} is not compressed, whatever its name says; rename it: mv {name} {shlex.quote(str(path)[:-3])}"
        )
