"""Text as all readers see it: UTF-8, perhaps compressed by gzip, in blocks of whole lines without comments.

A comment is a line that begins with # or %. A # inside a line is data. A quoted field ends on its line.
"""

import contextlib
import gzip
import io
import re
import shlex
import stat
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from hpcgnn.errors import FormatError

COMMENTS = ("#", "%")
BLOCK = 1 << 22
_MARK, _WIDE_MARKS = b"\xef\xbb\xbf", (b"\xff\xfe", b"\xfe\xff")
_COMMENT = re.compile(rb"^[ \t]*[#%][^\n]*(?:\n|\Z)", re.MULTILINE)
_ROW = re.compile(rb"^[ \t]*[^#%\s]", re.MULTILINE)


def check_readable_twice(path: Path) -> None:
    """Raise FormatError for a pipe, a socket or a terminal. Readers look at the first lines before they read a file."""
    with contextlib.suppress(OSError):
        kind = path.stat().st_mode
        if not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):
            raise FormatError(
                f"{path} can be read only once, expected a file: write it to a file first (cat {path} > input.csv), "
                "and import that"
            )


@contextlib.contextmanager
def readable(path: Path) -> Iterator[None]:
    """Faults of a file, of its packing and of its bytes as FormatError, in the body of a `with` statement."""
    try:
        yield
    except FileNotFoundError as error:
        raise FormatError(f"there is no table at {path}") from error
    except UnicodeDecodeError as error:
        raise FormatError(
            f"{path} is not a readable table, expected UTF-8: {error}; convert it: iconv -f latin1 -t utf-8"
        ) from error
    except (OSError, EOFError, zlib.error) as error:
        raise FormatError(f"{path} is not a readable table: {error}") from error


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


class Comments:
    """Counts the comment lines below the first row, which may be rows whose first word begins with #."""

    def __init__(self) -> None:
        self.below = 0


def blocks(
    path: Path, size: int = BLOCK, comments: Comments | None = None, progress: Callable[[int], object] | None = None
) -> Iterator[bytes]:
    """Whole lines of a text file, about `size` bytes at a time, without comments; each line but the last ends with LF.

    progress: called with the number of bytes of the file that were read. Raises FormatError.
    """
    with readable(path), open(path, "rb") as raw:
        file = _open(raw, path)
        rest, seen, rows = b"", 0, False
        while block := file.read(size):
            if b"\r" in block and b"\n" not in block and b"\n" not in rest:
                _refuse_old_lines(path, (rest + block).rstrip(b"\r"))
            kept, end, last = (rest + block).rpartition(b"\n")
            rest = last
            if block := _clean(path, kept + end, rows, comments):
                rows = True
                yield block
            if progress is not None:
                progress(raw.tell() - seen)
                seen = raw.tell()
        if rest := _clean(path, rest, rows, comments):
            yield rest


def _refuse_old_lines(path: Path, text: bytes) -> None:
    if b"\r" in text:
        raise FormatError(
            f"{path} has line ends of CR alone, expected LF or CRLF: tr '\\r' '\\n' < {shlex.quote(str(path))} > lf.csv"
        )


def _clean(path: Path, block: bytes, rows: bool, comments: Comments | None) -> bytes:
    """Lines without comments, ended by LF. rows: whether a row stands above them."""
    if b"\0" in block:
        raise FormatError(f"{path} is no text, for it has a byte 0; expected text in UTF-8")
    if b"\r" in block:
        block = block.replace(b"\r\n", b"\n").removesuffix(b"\r")
        _refuse_old_lines(path, block)
    if _MARK in block:
        raise FormatError(f"{path} has a byte order mark inside, as files that were joined have; take it out")
    if b"#" in block or b"%" in block:
        first = None if rows else _ROW.search(block)
        above = 0 if rows else len(_COMMENT.findall(block, 0, first.start() if first else len(block)))
        block, count = _COMMENT.subn(b"", block)
        if comments is not None:
            comments.below += count - above
    if b'"' in block:
        for line in block.split(b"\n"):
            if line.count(b'"') % 2:
                raise FormatError(
                    f"{path}: a quoted field does not end on its line ({line[:40].decode(errors='replace')}); expected "
                    "a row on one line"
                )
    return block
