"""Compressed files: gzip is read where the name says so. All else gets one line."""

from pathlib import Path

from hpcgnn.errors import FormatError

#: The first bytes of a packed file, and the command that unpacks it.
_PACKED = {
    b"\x1f\x8b": ("gzip", "gunzip"),
    b"BZh": ("bzip2", "bunzip2"),
    b"\xfd7zXZ": ("xz", "unxz"),
    b"\x28\xb5\x2f\xfd": ("zstd", "unzstd"),
    b"PK\x03\x04": ("zip", "unzip"),
}
_ARCHIVES = (".npz", ".pt", ".pth", ".tgz")


def refuse_packed(path: Path) -> None:
    """FormatError for a file that is packed by another program than gzip, or whose name does not say what it is."""
    if not path.is_file() or path.suffix in _ARCHIVES:
        return
    with open(path, "rb") as file:
        start = file.read(8)
    kind, command = next((_PACKED[first] for first in _PACKED if start.startswith(first)), ("", ""))
    if kind == "gzip" and path.suffix != ".gz":
        raise FormatError(f"{path} is compressed by gzip; its name must end with .gz")
    if kind not in ("", "gzip"):
        raise FormatError(f"{path} is compressed by {kind}, and only gzip is read; unpack it ({command})")
    if path.suffix == ".gz" and not kind and start:
        raise FormatError(f"{path} is not compressed, whatever its name says; take .gz from its name")
