"""Text as all readers see it: UTF-8, perhaps compressed by gzip, in blocks of whole lines.

Comments are lines above the first row that begin with # or %. A # inside a line is data. A quoted field ends on its
line.
"""

import contextlib
import gzip
import io
import re
import shlex
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from hpcgnn.errors import FormatError

COMMENTS = ("#", "%")
BLOCK = 1 << 22
_MARK, _WIDE_MARKS = b"\xef\xbb\xbf", (b"\xff\xfe", b"\xfe\xff")
_ABOVE = re.compile(rb"(?:[ \t]*[#%][^\n]*\n)*")
_COMMENT = re.compile(rb"^[ \t]*[#%][^\n]*", re.MULTILINE)


@contextlib.contextmanager
def readable(path: Path) -> Iterator[None]:
    """Faults of a file, of its packing and of its bytes as FormatError, in the body of a `with` statement."""
    try:
        yield
    except FileNotFoundError as error:
        raise FormatError(f"there is no table at {path}") from error
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise FormatError(f"{path} is not a readable table, expected UTF-8: {error}") from error


def _open(raw: IO[bytes], path: Path) -> IO[bytes]:
    """The bytes of an open file, unpacked, after its byte order mark. Raises FormatError for UTF-16."""
    file: Any = gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw
    start = file.read(len(_MARK))
    if start.startswith(_WIDE_MARKS):
        raise FormatError(f"{path} is text in UTF-16, expected UTF-8; convert it: iconv -f utf-16 -t utf-8")
    if start != _MARK:
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
            if b"\r" in block and b"\n" not in rest + block:
                _refuse_old_lines(path, (rest + block).rstrip(b"\r"))
            kept, end, rest = (rest + block).rpartition(b"\n")
            if block := _clean(path, kept + end, above):
                above = False
                yield block
            progress(raw.tell() - seen)
            seen = raw.tell()
        if rest := _clean(path, rest + b"\n" if rest else b"", above):
            yield rest


def _refuse_old_lines(path: Path, text: bytes) -> None:
    if b"\r" in text:
        raise FormatError(
            f"{path} has line ends of CR alone, expected LF or CRLF: tr '\\r' '\\n' < {shlex.quote(str(path))} > lf.csv"
        )


def _clean(path: Path, block: bytes, above: bool) -> bytes:
    """Lines without the comments above the first row. Raises FormatError."""
    if b"\0" in block:
        raise FormatError(f"{path} is no text, for it has a byte 0; expected text in UTF-8")
    if b"\r" in block:
        block = block.replace(b"\r\n", b"\n")
        _refuse_old_lines(path, block)
    if _MARK in block:
        raise FormatError(f"{path} has a byte order mark inside, as files that were joined have; take it out")
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
