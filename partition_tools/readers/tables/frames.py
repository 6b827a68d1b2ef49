"""Tables in text and in Parquet, read by polars in blocks of rows, every column of a text as text.

So `007`, `1e2` and `C#` stay what they are until a column's meaning is known (`values`).
"""

import csv
import importlib
import io
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcgnn.errors import FormatError
from partition_tools.readers.tables.text import COMMENTS, blocks, lines, readable
from partition_tools.workspace.progress import Reporter
from partition_tools.workspace.scratch import Scratch

if TYPE_CHECKING:
    import polars as pl

# A parsed table takes about so many bytes for one of text, and text about so many for one of .gz.
PARSED, UNPACKED = 6, 4
SMALLEST_BLOCK, LARGEST_BLOCK = 1 << 10, 1 << 25
_BLANKS = re.compile(rb"[ \t]+")
_EMPTY_LINES = re.compile(rb"^ *\n", re.MULTILINE)
_NUMBER = re.compile(r"\s*[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|nan|inf(inity)?)\s*", re.IGNORECASE | re.ASCII)


def polars() -> Any:
    """The module. Raises FormatError where it is not installed."""
    try:
        return importlib.import_module("polars")
    except ImportError as error:
        raise FormatError("reading tables needs polars: pip install 'hpcgnn[import]'") from error


def is_number(text: str) -> bool:
    """Whether a text is a number to all programs. To Python 1_000 is one too."""
    return _NUMBER.fullmatch(text) is not None


@dataclass(frozen=True)
class TableFile:
    """A table on disk.

    Attributes:
        path: Its file.
        fields: The first row of a text, or the names of Parquet's columns; () for a table without rows.
        heading: Whether that row names the columns.
        separator: A comma, a tab or a blank, which stands for any number of blanks; "" for Parquet.
    """

    path: Path
    fields: tuple[str, ...]
    heading: bool
    separator: str

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of the columns, or None."""
        return self.fields if self.heading else None

    def is_large(self, scratch: Scratch) -> bool:
        """Whether the table would take too much memory if it were parsed at once."""
        packed = self.path.suffix == ".gz" or not self.separator
        return PARSED * self.path.stat().st_size * (UNPACKED if packed else 1) > scratch.memory // 4

    def blocks(self, reporter: Reporter, memory: int = 1 << 30) -> "Iterator[pl.DataFrame]":
        """The rows, some at a time, in columns 0, 1, …: of a text all are text. Raises FormatError."""
        size = min(max(memory // (8 * PARSED), SMALLEST_BLOCK), LARGEST_BLOCK)
        with reporter.bar(self.path.stat().st_size, f"reading {self.path}", "B") as progress:
            yield from self._texts(size, progress) if self.separator else self._parquet(size, progress)

    def frame(self, reporter: Reporter) -> "pl.DataFrame":
        """All rows at once."""
        found = list(self.blocks(reporter))
        return polars().concat(found) if found else polars().DataFrame(schema=self._schema())

    def _schema(self) -> dict[str, Any]:
        return {str(place): polars().String for place in range(len(self.fields))}

    def _texts(self, size: int, progress: Callable[[int], object]) -> "Iterator[pl.DataFrame]":
        skip, row = self.heading, 0
        for block in blocks(self.path, size, progress):
            if self.separator == " ":
                block = b"\n".join(line.strip() for line in _BLANKS.sub(b" ", block).split(b"\n"))
            if len(self.fields) > 1 and (b"\n\n" in block or b"\n " in block or block[:1] in b"\n "):
                block = _EMPTY_LINES.sub(b"", block)
            if skip and block:
                block, skip = block.lstrip(b"\n").partition(b"\n")[2], False
            if block:
                yield (frame := self._parsed(block, row))
                row += len(frame)

    def _parsed(self, block: bytes, row: int) -> "pl.DataFrame":
        pl = polars()
        if self.separator == " " and b'"' in block:
            raise FormatError(f"{self.path} has quotes between blanks; expected commas or tabs around quoted words")
        try:
            frame = pl.read_csv(
                io.BytesIO(block),
                has_header=False,
                separator=self.separator,
                schema=self._schema(),
                empty_string_is_null=False,
            )
        except pl.exceptions.PolarsError as error:
            said = str(error).split("\n")[0]
            if re.search("number of columns|more fields|not specified in schema", said):
                said = f"a row has other than {len(self.fields)} columns ({', '.join(self.fields)[:60]})"
            raise FormatError(
                f"{self.path} is not a readable table, expected UTF-8: {said}, counted from row {row}"
            ) from error
        frame = frame.select(pl.all().fill_null("").str.strip_chars())
        if b'"' in block and any(column.str.starts_with('"').any() for column in frame):
            raise FormatError(f'{self.path} has a quote behind a blank; expected fields such as "a, b" without one')
        return frame

    def _parquet(self, size: int, progress: Callable[[int], object]) -> "Iterator[pl.DataFrame]":
        pl, rows = polars(), max(size // (8 * max(len(self.fields), 1)), 1)
        try:
            whole = pl.scan_parquet(self.path, glob=False).rename(dict(zip(self.fields, self._schema(), strict=True)))
            count = whole.select(pl.len()).collect().item()
            for start in range(0, count, rows):
                yield whole.slice(start, rows).collect()
                progress(self.path.stat().st_size * min(rows, count - start) // count)
        except (pl.exceptions.PolarsError, OSError) as error:
            raise FormatError(f"{self.path} is not a readable Parquet file: {str(error)[:200]}") from error


def open_table(path: str | Path, heading: bool | None = None) -> TableFile:
    """The `TableFile` of a text or a Parquet file. Raises FormatError.

    heading: whether the first row is one; None: it is if no field of it is a number.
    """
    path = Path(path)
    if path.suffix == ".parquet":
        pl = polars()
        try:
            return TableFile(path, tuple(pl.read_parquet_schema(path)), True, "")
        except (pl.exceptions.PolarsError, OSError) as error:
            raise FormatError(f"{path} is not a readable Parquet file: {str(error)[:200]}") from error
    with readable(path):
        first = next((line for line in lines(path) if not line.lstrip().startswith(COMMENTS)), "")
        if not first.strip() and next(blocks(path), b"").strip():
            raise FormatError(f"{path} begins with an empty line; take it out, or write none or nan for a value")
    separator = "," if "," in first else "\t" if "\t" in first.strip() else " "
    fields = _fields(first, separator)
    if len(fields) == 1 and (mark := next((mark for mark in ";|" if mark in first), "")):
        raise FormatError(
            f"{path} has fields that seem to be separated by '{mark}'; expected a comma, a tab or blanks: "
            f"`tr '{mark}' , < {shlex.quote(str(path))} > commas.csv`"
        )
    if heading is None:
        heading = bool(fields) and not any(map(is_number, fields))
    return TableFile(path, fields, heading, separator if len(fields) > 1 else ",")


def _fields(line: str, separator: str) -> tuple[str, ...]:
    if not line.strip():
        return ()
    if separator == " ":
        return tuple(field.strip('"') for field in line.split()) if '"' not in line else (line.strip().strip('"'),)
    line = line.strip(" \r\n")
    try:
        fields = next(csv.reader([line], delimiter=separator, skipinitialspace=True))
    except csv.Error:
        fields = line.split(separator)
    return tuple(field.strip() for field in fields)
