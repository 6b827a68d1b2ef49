"""Text as all readers see it: UTF-8, perhaps compressed by gzip, in blocks of whole lines.

Comments are lines above the first row that begin with # or %. A # inside a line is data. A quoted field ends on its
line.
"""

import contextlib
import gzip
import io
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from hpcgnn.errors import FormatError
from hpcgnn.likely_names import file_beside

COMMENTS = ("#", "%")
BLOCK = 1 << 22
_MARK = b"\xef\xbb\xbf"
_ODD = {b"\0": "a byte 0, as UTF-16 has", b"\r": "line ends of CR alone", _MARK: "a byte order mark inside"}
_ABOVE = re.compile(rb"(?:[ \t]*[#%][^\n]*\n)*")
_COMMENT = re.compile(rb"^[ \t]*[#%][^\n]*", re.MULTILINE)


@contextlib.contextmanager
def readable(path: Path) -> Iterator[None]:
    """Faults of a file, of its packing and of its bytes as FormatError, in the body of a `with` statement."""
    try:
        yield
    except FileNotFoundError as error:
        raise FormatError(f"there is no table at {path}{file_beside(path)}") from error
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise FormatError(f"{path} is not a readable table, expected UTF-8: {error}") from error


def _open(raw: IO[bytes], path: Path) -> IO[bytes]:
    """The bytes of an open file, unpacked, after its byte order mark."""
    file: Any = gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw
    if file.read(len(_MARK)) != _MARK:
        file.seek(0)
    return file


def lines(path: Path) -> Iterator[str]:
    """The lines of a text file, comments among them, decoded."""
    with open(path, "rb") as raw, io.TextIOWrapper(_open(raw, path), encoding="utf-8") as text:
        yield from text


def blocks(path: Path, size: int = BLOCK, progress: Callable[[int], object] = lambda count: None) -> Iterator[bytes]:
    """Whole lines of a text file, about `size` bytes at a time, from its first row on; lines end with LF.

    progress: called with the number of bytes of the file that were read. Raises FormatError.
    """
    with readable(path), open(path, "rb") as raw:
        file = _open(raw, path)
        rest, seen, above = b"", 0, True
        while block := file.read(size):
            if b"\n" not in block:
                _refuse_odd(path, (rest + block).rstrip(b"\r"))
            kept, end, rest = (rest + block).rpartition(b"\n")
            if block := _clean(path, kept + end, above):
                above = False
                yield block
            progress(raw.tell() - seen)
            seen = raw.tell()
        if rest := _clean(path, rest + b"\n" if rest else b"", above):
            yield rest


def _refuse_odd(path: Path, text: bytes) -> None:
    if found := next((what for mark, what in _ODD.items() if mark in text), ""):
        raise FormatError(
            f"{path} has {found}; expected text in UTF-8, its lines ending with LF or CRLF (iconv, dos2unix)"
        )


def _clean(path: Path, block: bytes, above: bool) -> bytes:
    """Lines without the comments above the first row. Raises FormatError."""
    block = block.replace(b"\r\n", b"\n") if b"\r" in block else block
    _refuse_odd(path, block)
    if above:
        found = _ABOVE.match(block)
        block = block[found.end() :] if found else block
    if (b"#" in block or b"%" in block) and (found := _COMMENT.search(block)):
        raise FormatError(
            f"{path}: a line below the first row begins with # or % ({found[0][:30].decode(errors='replace')}); "
            "take it out if it is a comment, and put its first field in quotes if it is a row"
        )
    if b'"' in block:
        for line in block.split(b"\n"):
            if line.count(b'"') % 2:
                raise FormatError(
                    f"{path}: a quoted field does not end on its line ({line[:40].decode(errors='replace')}); expected "
                    "a row on one line"
                )
    return block
