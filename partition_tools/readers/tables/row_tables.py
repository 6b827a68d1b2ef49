"""Tables with a row for each node, and whose the rows are: by a column of ids, or by position."""

import functools
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hpcgnn.errors import FormatError
from partition_tools.graph.counts import whole
from partition_tools.readers.tables.foreign import refuse_table
from partition_tools.readers.tables.headings import is_id
from partition_tools.readers.tables.row_keys import AUTO, IDS, ROW_NUMBERS, check_later_columns, first_column
from partition_tools.readers.tables.tables import layout, load_npy, read_frame, read_parquet, unfolded, with_index
from partition_tools.readers.tables.text import COMMENTS, lines
from partition_tools.readers.tables.written_ids import check_spelling, exact_ids
from partition_tools.workspace.progress import Reporter

# Tables in .npy files of more bytes are mapped.
MAPPED = 1 << 26


@dataclass(frozen=True)
class Table:
    """A table of a graph's nodes.

    Attributes:
        ids: (n,), the node id of each row, or None: rows go by position.
        values: (n, C) in the order of the file.
        names: names of its columns, the ids' first, or None.
        how: the rule that gave rows to nodes, in words.
    """

    ids: np.ndarray | None
    values: np.ndarray
    names: list[str] | None
    how: str

    def whose(self, row: int) -> str:
        """A row in the words of the table."""
        return f"row {row} (from 0, below the heading)" if self.ids is None else f"node {self.ids[row]}"


def read_table(
    path: str | Path,
    exact: bool = False,
    data_words: Collection[str] = (),
    rows: str = AUTO,
    reporter: Reporter | None = None,
    classes: bool = False,
) -> Table:
    """The `Table` in a .npy array, a Parquet file or a text table.

    exact: keep ids that are words as they are written. data_words: words that are no heading. rows: one of
    `row_keys.ROWS`. classes: the values are classes or types, whose spelling matters. Raises FormatError.
    """
    path = Path(path)
    refuse_table(path)
    if path.suffix == ".npy":
        values = load_npy(path, MAPPED)
        if values.ndim not in (1, 2):
            raise FormatError(f"{path} has shape {values.shape}, expected a row for each node: (n,) or (n, columns)")
        values = values.reshape(len(values), -1)
        return _split_off(path, None, values, rows, lambda column: values[:, column])
    if path.suffix == ".parquet":
        frame = unfolded(path, with_index(read_parquet(path), 1))
        names = [str(name) for name in frame.columns]
        return _split_off(path, names, frame, rows, lambda column: frame.iloc[:, column].to_numpy())
    shape = layout(path)
    if shape.heading and len(shape.fields) == 1 and shape.fields[0].lower() in data_words:
        shape = replace(shape, heading=False)
    counted = shape.fields[1:] if shape.fields[:1] == ("",) else shape.fields if len(shape.fields) > 2 else ()
    if not shape.heading and counted and counted == tuple(map(str, range(len(counted)))):
        raise FormatError(
            f"{path}: the first row ({','.join(shape.fields)[:40]}) counts the columns, as pandas heads a "
            "table without names; write it with to_csv(index=False, header=False), or name the columns"
        )
    frame = read_frame(path, shape=shape, reporter=reporter)
    names = ["" if str(name).startswith("Unnamed: ") else str(name).strip() for name in frame.columns]
    ids_of = (
        functools.partial(exact_ids, path, shape, frame) if exact else lambda column: frame.iloc[:, column].to_numpy()
    )
    table = _split_off(path, names if shape.heading else None, frame, rows, ids_of)
    if len(shape.fields) == 1 and table.ids is None and _begins_blank(path):
        raise FormatError(
            f"{path} begins with an empty line, which may be the row of the first node; write none or nan "
            "there, or take the line out"
        )
    if classes and table.values.shape[1] == 1 and table.values.dtype.kind in "iuf":
        check_spelling(path, exact_ids(path, shape, frame, frame.shape[1] - 1))
    return table


def _split_off(
    path: Path, names: list[str] | None, values: Any, rows: str, ids_of: Callable[[int], np.ndarray]
) -> Table:
    """The `Table` of columns, an array or a DataFrame, whose first one may be the ids. ids_of(column): one as ids."""
    count = values.shape[1]
    array = (
        (lambda start: values[:, start:])
        if isinstance(values, np.ndarray)
        else lambda start: values.iloc[:, start:].to_numpy()
    )
    if not count:
        return Table(None, array(0), names, "no columns")
    first = values[:, 0] if isinstance(values, np.ndarray) else values.iloc[:, 0].to_numpy()
    if rows == AUTO and not (names and names[0] == ""):
        check_later_columns(path, names, lambda column: array(column)[:, 0])
    what = first_column(path, names, first, count - 1, rows)
    if what == ROW_NUMBERS and count > 2 and names is not None and is_id(names[1], count - 2) and rows == AUTO:
        return _split_off(path, names[1:], values.iloc[:, 1:], rows, lambda column: ids_of(column + 1))
    if what == IDS:
        named = f"rows keyed by {names[0] or 'the first column'}" if names else "rows keyed by the first column"
        return Table(_as_ids(path, ids_of(0)), array(1), names, named)
    skipped = what == ROW_NUMBERS
    how = "rows in node order" + (", without the column of row numbers" if skipped else "")
    return Table(None, array(int(skipped)), names[skipped:] if names else names, how)


def _as_ids(path: Path, ids: np.ndarray) -> np.ndarray:
    """Ids as integers or text. FormatError for numbers with a fraction and for none."""
    if ids.dtype.kind == "U":
        return ids
    if (numbers := whole(ids)) is not None:
        return numbers
    if ids.dtype.kind == "O":
        missing = np.array([value is None or value != value for value in ids], bool)
        if not missing.any():
            return np.char.strip(ids.astype(str))
        raise FormatError(f"{path}: row {int(np.argmax(missing))} has an empty node id")
    raise FormatError(f"{path}: the ids of the nodes must be integers or words, got {ids.dtype} such as {ids[0]}")


def _begins_blank(path: Path) -> bool:
    """Whether a line without anything stands before the first row."""
    return not next((line for line in lines(path) if not line.lstrip().startswith(COMMENTS)), "x").strip()
