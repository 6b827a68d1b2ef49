"""Tables of text: edge lists, and tables of features, labels and splits.

Text formats never declare themselves, so separator, comments and a heading are recognised from the first lines. pandas
does the parsing (an extra, since most users never import text). It is fast enough for 10^8 lines.
"""

import contextlib
import csv
import re
import shlex
import tokenize
import warnings
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hpcgnn.errors import ConfigError, FormatError
from partition_tools.readers.tables.row_keys import AUTO, ROWS
from partition_tools.readers.tables.text import COMMENTS, CleanFile, Comments, in_words, lines
from partition_tools.workspace.progress import Reporter

if TYPE_CHECKING:
    import pandas as pd


# Fields of `TableOptions` that tables beside a graph are described by, and those of archives.
OF_TABLES = ("features", "labels", "splits", "node_types", "rows")
OF_ARCHIVES = ("ignore", "rename", "split_column")


@dataclass(frozen=True)
class TableOptions:
    """Options of reading a source, as far as its format has them.

    Attributes:
        features, labels, splits, node_types: files of tables next to an edge list or matrix.
        edge_columns: meanings of the columns, for a list without a heading.
        edge_features: names of columns of the edge list, or a .npy file with a row for each edge.
        relabel: give nodes new numbers.
        node_ids: a file with the id of each row, for tables without a column of ids.
        heading: whether the edge list has one; None to recognise it.
        ignore: arrays of an .npz to leave out.
        rename: (old, new) names of its arrays.
        split_column: the split, if masks have a column for each of several.
        rows: one of `row_keys.ROWS`.

    Raises:
        ConfigError: an unknown value.
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
    rename: tuple[tuple[str, str], ...] = ()
    split_column: int | None = None
    edge_features: Path | tuple[str, ...] | None = None
    rows: str = AUTO

    def __post_init__(self) -> None:
        if self.rows not in ROWS:
            raise ConfigError(f"rows must be one of {', '.join(ROWS)}, got {self.rows!r}")

    def refuse(self, format_name: str, allowed: Collection[str] = ()) -> None:
        """FormatError if any field but `allowed` is set, for formats without the others."""
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
    """Facts from the first lines of a text table. skip: blank lines before the first row. fields: that row's, or ().

    heading: whether that row is a heading; comment: the words of the comment line before it, as many as fields, or ().
    """

    skip: int = 0
    separator: str = ","
    fields: tuple[str, ...] = ()
    heading: bool = False
    comment: tuple[str, ...] = ()


def layout(
    path: str | Path, header: bool | None = None, known: Callable[[Sequence[str]], bool] | None = None
) -> Layout:
    """The `Layout` of a text table. header: True/False, or None to recognise a heading.

    A heading has no field that is a number, or `known`(fields) is true. A line that begins with # or % is a comment.
    """
    with in_words(path):
        skip, first, comment = _first_row(Path(path), blank_is_row=header is False)
    if not first:
        return Layout(skip, heading=bool(header))
    separator = "," if "," in first else "\t" if "\t" in first.strip() else r"\s+"
    fields = _fields(first, separator)
    if len(fields) == 1 and (mark := next((mark for mark in ";|" if mark in fields[0]), None)):
        raise FormatError(
            f"{path} has one column ({fields[0][:40]}), whose fields seem to be separated by '{mark}'; expected a "
            f"comma, a tab or blanks: tr '{mark}' ',' < {shlex.quote(str(path))} > commas.csv"
        )
    if header is None:
        header = not any(is_number(field) for field in fields) or (known is not None and known(fields))
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
    path: str | Path,
    header: bool | None = None,
    shape: Layout | None = None,
    reporter: Reporter | None = None,
    **options: Any,
) -> "pd.DataFrame":
    """A pandas DataFrame of a text table. header: see `layout`; shape: the `Layout`, where it is known already.

    Separator: comma, tab or other white space. reporter: gets a warning of comments below the first row. An empty table
    has no columns.
    """
    path = Path(path)
    shape = layout(path, header) if shape is None else shape
    if not shape.fields:
        return _pandas().DataFrame()
    comments = Comments()
    with in_words(path):
        frame = parse(
            path,
            CleanFile(path, comments),
            shape,
            skiprows=shape.skip,
            header=0 if shape.heading else None,
            **options,
        )
    if reporter is not None:
        warn_of_comments(path, comments, reporter)
    return frame


def warn_of_comments(path: Path, comments: Comments, reporter: Reporter) -> None:
    """Warn of comments below the first row: an id such as #tag makes one of a row."""
    if comments.below:
        reporter.warn(
            f"{path}: {comments.below:,} lines below the first row begin with # or % and are comments; a row that "
            "begins so needs quotes around its first field"
        )


def parse(path: str | Path, source: Any, shape: Layout, **options: Any) -> "pd.DataFrame":
    """A pandas DataFrame of `source`, a binary file of lines without comments, that has the `Layout` of `path`.

    options: of pandas.read_csv. Raises FormatError for rows with too many columns, and pandas' own errors.
    """
    pandas = _pandas()
    with warnings.catch_warnings():
        warnings.simplefilter("error", pandas.errors.ParserWarning)
        try:
            return pandas.read_csv(
                source,
                sep=shape.separator,
                skipinitialspace=True,
                skip_blank_lines=len(shape.fields) > 1,
                encoding="utf-8",
                index_col=False,  # else pandas takes columns without a name for names of rows, and moves the others
                **options,
            )
        except pandas.errors.ParserWarning as error:
            raise FormatError(
                f"{path}: the rows have more columns than the heading ({', '.join(shape.fields)}); name them all"
            ) from error


def _first_row(path: Path, blank_is_row: bool) -> tuple[int, str, str]:
    """(number of blank lines before it, text, comment line before it) of the first line that is no comment; text is
    empty for a file without one."""
    comment, skip = "", 0
    for line in lines(path):
        if line.lstrip().startswith(COMMENTS):
            comment = line
        elif line.strip() or blank_is_row:
            return skip, line, comment
        else:
            skip += 1
    return 0, "", comment


_NUMBER = re.compile(r"\s*[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|nan|inf(inity)?)\s*", re.IGNORECASE | re.ASCII)


def is_number(text: str) -> bool:
    """Whether a text is a number to all programs. To Python 1_000 is one too."""
    return _NUMBER.fullmatch(text) is not None


def with_index(frame: "pd.DataFrame", most: int = 99) -> "pd.DataFrame":
    """A DataFrame whose index, if it holds anything, is its first columns. FormatError for more levels than `most`."""
    if frame.index.names == [None] and frame.index.equals(_pandas().RangeIndex(len(frame))):
        return frame
    if frame.index.nlevels > most:
        raise FormatError(
            f"the index has {frame.index.nlevels} levels, expected one that names the nodes (reset_index)"
        )
    names = ["" if name is None else str(name) for name in frame.index.names]
    return frame.reset_index(names=names, allow_duplicates=True)


def read_parquet(path: str | Path) -> "pd.DataFrame":
    """The table of a file in Parquet. Raises FormatError."""
    pandas = _pandas()
    with in_words(path):
        try:
            return pandas.read_parquet(path)
        except ImportError as error:
            raise FormatError("reading Parquet needs pyarrow: pip install 'hpcgnn[parquet]'") from error


def unfolded(path: str | Path, frame: "pd.DataFrame") -> "pd.DataFrame":
    """A DataFrame with a column for each place of lists, as Spark and GraphStorm store vectors. Raises FormatError."""
    parts = []
    for place, name in enumerate(frame.columns):
        column = frame.iloc[:, [place]]
        values = column.iloc[:, 0].to_numpy()
        if len(values) and values.dtype == object and isinstance(values[0], (list, np.ndarray)):
            lengths = [len(each) if isinstance(each, (list, np.ndarray)) else -1 for each in values]
            if other := next((row for row, length in enumerate(lengths) if length != lengths[0]), 0):
                got = f"{lengths[other]} numbers" if lengths[other] >= 0 else "none"
                raise FormatError(f"{path}: column {name} has {lengths[0]} numbers in row 0 and {got} in row {other}")
            names = [f"{name}.{number}" for number in range(lengths[0])]
            column = _pandas().DataFrame(np.stack(values), columns=names, index=frame.index)
        parts.append(column)
    return _pandas().concat(parts, axis=1) if parts else frame


def load_npy(path: str | Path, mapped: int | None = None) -> np.ndarray:
    """The array of a .npy file; one of more than `mapped` bytes is mapped, read-only.

    FormatError, with a remedy, for one that is damaged or pickled.
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
    if values.dtype.kind not in "OU":
        raise FormatError(f"{path} holds {values.dtype}, expected numbers")
    for value in values.flat:
        if isinstance(value, str) and not is_number(value):
            raise FormatError(f"{path} has an entry that is not a number: {value!r}")
    try:
        return values.astype(np.float64)
    except (ValueError, TypeError) as error:
        raise FormatError(f"{path} has an entry that is not a number: {error}") from error
