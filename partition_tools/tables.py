"""Tables of text: edge lists, and the features, labels and splits that lie beside them.

Text formats never say what they are, so separator, comments and a heading are recognised from the first lines. pandas
does the parsing (an extra, since most users never import text): it is the one parser here that is fast enough for 10^8
lines.
"""

import contextlib
import csv
import gzip
import re
import tokenize
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hpcgnn.errors import FormatError
from partition_tools.foreign import refuse_table
from partition_tools.headings import is_id

if TYPE_CHECKING:
    import pandas as pd


COMMENTS = ("#", "%")
# Fields of `TableOptions` that tables beside a graph are described by, and those of archives.
OF_TABLES = ("features", "labels", "splits", "node_types")
OF_ARCHIVES = ("ignore", "split_column")
# Tables in .npy files of more bytes are mapped.
MAPPED = 1 << 26


@dataclass(frozen=True)
class TableOptions:
    """How to read a source, as far as its format asks: files beside an edge list or matrix, the meaning of its columns,
    whether node ids are to be renumbered; and of an archive what to leave out.

    edge_features: names of columns of the edge list, or a .npy file with a row for each edge; which columns they are,
    for a list without a heading, edge_columns says. node_ids: a file with the id of each row of the tables that have no
    column of ids. heading: whether the edge list has one; None to recognise it. ignore: arrays of an .npz that are not
    to be read. split_column: of masks with several.
    """

    features: Path | None = None
    labels: Path | None = None
    splits: Path | None = None
    node_types: Path | None = None
    edge_columns: tuple[str, ...] | None = None
    relabel: bool = False
    node_ids: Path | None = None
    heading: bool | None = None
    ignore: tuple[str, ...] = ()
    split_column: int | None = None
    edge_features: Path | tuple[str, ...] | None = None

    def refuse(self, format_name: str, allowed: Collection[str] = ()) -> None:
        """FormatError if anything is set beside the fields `allowed`, for formats that it means nothing to."""
        given = [
            field.name
            for field in fields(self)
            if getattr(self, field.name) != field.default and field.name not in allowed
        ]
        if given:
            options, archives = (
                ", ".join(f"--{name.replace('_', '-')}" for name in given),
                set(given) <= set(OF_ARCHIVES),
            )
            raise FormatError(
                f"{options}: for {'.npz archives' if archives else 'edge lists and Matrix Market'}; {format_name} "
                f"{'is read whole' if archives else 'has its own arrays'}"
            )


def _pandas() -> Any:
    try:
        import pandas
    except ImportError as error:
        raise FormatError("reading text tables needs pandas: pip install 'hpcgnn[import]'") from error
    return pandas


@dataclass(frozen=True)
class Layout:
    """What the first lines of a text table tell. skip: lines before the first row. fields: of that row, () without one.

    heading: whether that row is a heading; comment: the words of the comment line before it, as many as fields, or ().
    """

    skip: int = 0
    separator: str = ","
    fields: tuple[str, ...] = ()
    heading: bool = False
    comment: tuple[str, ...] = ()


@contextlib.contextmanager
def in_words(path: str | Path) -> Iterator[None]:
    """FormatError that names the table for what goes wrong with it in the body."""
    try:
        yield
    except FileNotFoundError as error:
        raise FormatError(f"no table at {path}") from error
    except (ValueError, OSError, EOFError, OverflowError, zlib.error) as error:
        raise FormatError(f"{path} is not a readable table: {error}") from error


def layout(
    path: str | Path, header: bool | None = None, known: Callable[[Sequence[str]], bool] | None = None
) -> Layout:
    """The `Layout` of a text table. header: True/False, or None to recognise a heading, which has no field that is a
    number, or of whose fields `known`(fields) is true. Lines that begin with # or % before the first row are comments.
    """
    with in_words(path):
        skip, first, comment = _first_row(Path(path), blank_is_row=header is False)
    if not first:
        return Layout(skip, heading=bool(header))
    separator = "," if "," in first else "\t" if "\t" in first.strip() else r"\s+"
    fields = _fields(first, separator)
    if header is None:
        header = not any(_is_number(field) for field in fields) or (known is not None and known(fields))
    comment = comment.strip().lstrip("".join(COMMENTS)).strip()
    words = (_fields(comment, separator), _fields(comment, r"[\s,]+"))
    return Layout(
        skip,
        separator if len(fields) > 1 else ",",
        fields,
        header,
        next((each for each in words if len(each) == len(fields)), ()),
    )


def _fields(line: str, separator: str) -> tuple[str, ...]:
    fields = re.split(separator, line.strip())
    if len(separator) == 1:
        with contextlib.suppress(csv.Error):
            fields = next(csv.reader([line.strip()], delimiter=separator, skipinitialspace=True), fields)
    return tuple(field.strip().strip('"') for field in fields)


def read_frame(
    path: str | Path, header: bool | None = None, shape: Layout | None = None, **options: Any
) -> "pd.DataFrame":
    """A pandas DataFrame of a text table. header: see `layout`; shape: the `Layout`, where it is known already.

    Separator: comma, tab or other white space. What follows a # anywhere is a comment. An empty table has no columns.
    """
    path = Path(path)
    shape = layout(path, header) if shape is None else shape
    if not shape.fields:
        return _pandas().DataFrame()
    with in_words(path):
        return parse(path, path, shape, skiprows=shape.skip, header=0 if shape.heading else None, **options)


def parse(path: str | Path, source: Any, shape: Layout, **options: Any) -> "pd.DataFrame":
    """A pandas DataFrame of `source`, a path or a binary file, that has the `Layout` of the table at `path`.

    options: of pandas.read_csv. Raises FormatError for rows of more columns than there are, and what pandas does.
    """
    pandas = _pandas()
    frame = pandas.read_csv(
        source,
        sep=shape.separator,
        comment="#",
        skipinitialspace=True,
        skip_blank_lines=len(shape.fields) > 1,
        **options,
    )
    if not isinstance(frame.index, pandas.RangeIndex):  # pandas takes the columns without a name for names of rows
        raise FormatError(
            f"{path}: the rows have more columns than the heading ({', '.join(shape.fields)}); name them all"
        )
    return frame


def _first_row(path: Path, blank_is_row: bool) -> tuple[int, str, str]:
    """(number of lines before it, text, comment line before it) of the first line that is no comment; text is empty for
    a file without one."""
    comment = ""
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt") as lines:
        for skip, line in enumerate(lines):
            if line.lstrip().startswith(COMMENTS):
                comment = line
            elif line.strip() or blank_is_row:
                return skip, line, comment
    return 0, "", comment


def _begins_blank(path: Path) -> bool:
    """Whether a line without anything stands before the first row."""
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt") as lines:
        return not next((line for line in lines if not line.lstrip().startswith(COMMENTS)), "x").strip()


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def read_table(
    path: str | Path, exact: bool = False, data_words: Collection[str] = ()
) -> tuple[np.ndarray | None, np.ndarray, list[str] | None]:
    """(ids or None, values 2-D array, heading or None) of a .npy array or a text table.

    ids: the first column where its heading says that it holds ids. values keep the order of the file. exact: ids as
    they are written, for those that are words. data_words: words that are no heading.
    """
    path = Path(path)
    refuse_table(path)
    if path.suffix == ".npy":
        values = load_npy(path, MAPPED)
        return None, values.reshape(len(values), -1) if values.ndim else values.reshape(1, 1), None
    if path.suffix == ".parquet":
        return _parquet_table(path)
    shape = layout(path)
    if shape.heading and all(field.lower() in data_words for field in shape.fields):
        shape = replace(shape, heading=False)
    counted = shape.fields[1:] if shape.fields[:1] == ("",) else shape.fields if len(shape.fields) > 2 else ()
    if not shape.heading and counted and counted == tuple(map(str, range(len(counted)))):
        raise FormatError(
            f"{path}: the first row ({','.join(shape.fields)[:40]}) counts the columns, as pandas heads a "
            "table without names; write it with to_csv(index=False, header=False), or name the columns"
        )
    frame = read_frame(path, shape=shape)
    names = [str(name).strip() for name in frame.columns] if shape.heading else None
    keyed = names is not None and len(names) > 0 and is_id(names[0], len(names) - 1)
    late = [name for name in (names or ())[1:] if is_id(name, 0)]
    if late and not keyed:
        raise FormatError(
            f"{path}: the column {late[0]} is not the first; expected the ids of the nodes in the first "
            "column, before what is known of them"
        )
    if len(shape.fields) == 1 and not keyed and _begins_blank(path):
        raise FormatError(
            f"{path} begins with an empty line, which may be the row of the first node; write none or nan "
            "there, or take the line out"
        )
    ids = (exact_ids(path, shape, frame, 0) if exact else frame.iloc[:, 0].to_numpy()) if keyed else None
    return ids, frame.iloc[:, 1 if keyed else 0 :].to_numpy(), names


def _parquet_table(path: Path) -> tuple[np.ndarray | None, np.ndarray, list[str]]:
    """`read_table` of a file in Parquet, whose columns always have names."""
    frame = read_parquet(path)
    names = [str(name) for name in frame.columns]
    keyed = len(names) > 0 and is_id(names[0], len(names) - 1)
    ids = frame.iloc[:, 0].to_numpy() if keyed else None
    if ids is not None and ids.dtype.kind == "O":
        ids = ids.astype(str)
    return ids, frame.iloc[:, 1 if keyed else 0 :].to_numpy(), names


def read_parquet(path: str | Path) -> "pd.DataFrame":
    """The table of a file in Parquet. Raises FormatError."""
    pandas = _pandas()
    with in_words(path):
        try:
            return pandas.read_parquet(path)
        except ImportError as error:
            raise FormatError("reading Parquet needs pyarrow: pip install 'hpcgnn[parquet]'") from error


def load_npy(path: str | Path, mapped: int | None = None) -> np.ndarray:
    """The array of a .npy file; one of more than `mapped` bytes is mapped, read-only.

    FormatError, with what to do, for one that is damaged or pickled.
    """
    try:
        large = mapped is not None and Path(path).stat().st_size > mapped
        return np.load(path, "r" if large else None, allow_pickle=False)
    except (OSError, ValueError, EOFError, SyntaxError, tokenize.TokenError) as error:  # of the header's text
        hint = ""
        if "ickle" in str(error):
            hint = (
                "; save it again as a plain array, without objects: a = numpy.load(FILE, allow_pickle=True); "
                "numpy.save(FILE, numpy.array(a.tolist()))"
            )
        raise FormatError(f"{path} is not a readable .npy array: {error}{hint}") from error


def numeric(values: np.ndarray, path: str | Path) -> np.ndarray:
    """Values as numbers; FormatError naming the table otherwise."""
    if values.dtype.kind in "iufb":
        return values
    try:
        return values.astype(np.float64)
    except (ValueError, TypeError) as error:
        raise FormatError(f"{path} has an entry that is not a number: {error}") from error


def exact_ids(path: str | Path, shape: Layout, frame: "pd.DataFrame", column: int) -> np.ndarray:
    """A column of ids: integers where they are written as such, else the texts as they stand in the file, stripped.

    A parser makes one number of 01 and 1, and no value of NA and null. Only where that can matter is the column read
    again.
    """
    values = frame.iloc[:, column].to_numpy()
    if values.dtype.kind == "f" and (np.abs(values) < 2**53).all() and np.array_equal(values, np.rint(values)):
        return values.astype(np.int64)
    if values.dtype.kind in "iu" and not _file_has_odd_numbers(path):
        return values
    frame = read_frame(path, shape=shape, usecols=[column], dtype=str, keep_default_na=False)
    return frame.iloc[:, 0].str.strip().to_numpy().astype(str)


# Bytes as what they are in a number: a zero, another digit, what may stand before one (white space, comma, quote,
# minus), a plus.
_KINDS = bytes.maketrans(bytes(range(256)), b"," * ord("+") + b"+,,xx" + b"0" + b"1" * 9 + b"x" * (256 - 58))


def _file_has_odd_numbers(path: str | Path) -> bool:
    with (gzip.open if Path(path).suffix == ".gz" else open)(path, "rb") as file:
        end = b"\n"
        while block := file.read(1 << 22):
            if has_odd_numbers(end + block):
                return True
            end = block[-2:]
    return False


def has_odd_numbers(text: bytes) -> bool:
    """Whether a text may have a number that is not written as it is printed: 01, -01, +1. (Others are not known as
    integers.) The first byte is no part of a number.
    """
    kinds = text.translate(_KINDS)
    return b"+" in kinds or b",0" in kinds and (b",00" in kinds or b",01" in kinds)
