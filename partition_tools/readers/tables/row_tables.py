"""Tables with a row for each node, and whose the rows are: by a column id, or by position.

A table that names nodes and is read by position gives every node the data of another, and nothing fails. So rows go by
position only if nothing may name the nodes, or by `--rows position`.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hpcgnn.errors import FormatError
from partition_tools.graph.counts import whole
from partition_tools.readers.tables.foreign import refuse_table
from partition_tools.readers.tables.frames import TableFile, open_table, polars
from partition_tools.readers.tables.headings import is_id, may_be_id
from partition_tools.readers.tables.tables import AUTO, KEYED, load_npy
from partition_tools.readers.tables.values import check_spelling, ids_of, numbers_of, typed
from partition_tools.workspace.progress import Reporter

if TYPE_CHECKING:
    import polars as pl

# Tables in .npy files of more bytes are mapped.
MAPPED = 1 << 26
# Fewer rows may count 0, 1, 2 by chance.
FEW_ROWS = 4


@dataclass(frozen=True)
class Table:
    """A table of a graph's nodes.

    Attributes:
        ids: (n,), the node id of each row, or None: rows go by position.
        values: (n, C) in the order of the file.
        names: names of the columns of values, or None.
        how: the rule that gave rows to nodes, in words.
    """

    ids: np.ndarray | None
    values: np.ndarray
    names: list[str] | None
    how: str

    def whose(self, row: int) -> str:
        """A row in the words of the table."""
        return f"row {row} (from 0, below the heading)" if self.ids is None else f"node {self.ids[row]}"


@dataclass(frozen=True)
class Reading:
    """How tables are read. exact: ids that are words stay as they are written. rows: one of `tables.ROWS`."""

    exact: bool
    rows: str
    reporter: Reporter


def read_table(
    path: Path, how: Reading, data_words: Collection[str] = (), numbers: bool = False, classes: bool = False
) -> Table:
    """The `Table` in a .npy array, a Parquet file or a text table. Raises FormatError.

    data_words: words that are no heading. numbers: all data are numbers. classes: the values are classes or types.
    """
    refuse_table(path)
    if path.suffix == ".npy":
        return _of_array(path, how.rows)
    file = open_table(path)
    if file.heading and len(file.fields) == 1 and file.fields[0].lower() in data_words:
        file = replace(file, heading=False)
    counted = file.fields[1:] if file.fields[:1] == ("",) else file.fields if len(file.fields) > 2 else ()
    if not file.heading and counted and counted == tuple(map(str, range(len(counted)))):
        raise FormatError(
            f"{path}: the first row ({','.join(file.fields)[:40]}) counts the columns, as pandas heads a "
            "table without names; write it with to_csv(index=False, header=False), or name the columns"
        )
    key = _key_column(file, how.rows)
    ids, columns = _read(file, key, how, numbers)
    names = None if file.names is None else [name for place, name in enumerate(file.names) if place != key]
    if how.rows == AUTO and key is None and len(columns) > 1:
        _check_first(path, names, columns[0])
    dropped = key is not None and ids is None
    if not len(columns):
        return Table(ids, np.zeros((0 if ids is None else len(ids), 0)), names, "no columns")
    if classes and len(columns) == 1 and isinstance(columns[0], polars().Series) and file.separator:
        check_spelling(path, columns[0].unique().to_list())
    found = [each if isinstance(each, np.ndarray) else typed(each, path) for each in columns]
    arrays = [each if each.ndim == 2 else each[:, None] for each in found]
    if names is not None and sum(each.shape[1] for each in arrays) > len(names):  # lists have several numbers
        names = [
            f"{name}.{number}" if each.shape[1] > 1 else name
            for name, each in zip(names, arrays, strict=True)
            for number in range(each.shape[1])
        ]
    rule = "rows in node order" + (", without the column of ids" if dropped else "")
    if ids is not None:
        rule = f"rows keyed by {file.names[key] if file.names and key is not None else 'the first column'}"
    return Table(ids, arrays[0] if len(arrays) == 1 else np.concatenate(arrays, 1), names, rule)


def _key_column(file: TableFile, rows: str) -> int | None:
    """The place of the column that names the nodes, which is no data; None if there is none. Raises FormatError."""
    if rows == KEYED:
        if len(file.fields) < 2:
            raise FormatError(f"{file.path} has one column, expected the ids of the nodes and data (--rows id)")
        return 0
    nameless = [place for place, name in enumerate(file.names or ()) if name in ("", "__index_level_0__")]
    if nameless and rows == AUTO and len(file.fields) > 1:
        raise FormatError(
            f"{file.path}: column {nameless[0] + 1} has no name, as pandas writes the index; head it id if it names "
            "the nodes, or take it out (to_csv(index=False)), or say --rows position"
        )
    named = [place for place, name in enumerate(file.names or ()) if is_id(name)]
    if len(named) > 1:
        raise FormatError(f"{file.path} has several columns of ids ({', '.join(file.fields)}); take all but one out")
    if named:
        return named[0]
    return nameless[0] if nameless and len(file.fields) > 1 else None


def _read(
    file: TableFile, key: int | None, how: Reading, numbers: bool
) -> "tuple[np.ndarray | None, list[pl.Series] | list[np.ndarray]]":
    """(ids or None, the other columns). Numbers are converted block by block, so that their texts take little."""
    keyed = key is not None and (how.rows == KEYED or how.rows == AUTO)
    places = [place for place in range(len(file.fields)) if place != key]
    if not numbers:
        frame = file.frame(how.reporter)
        ids = ids_of(frame[str(key)], file.path, how.exact) if keyed else None
        return ids, [frame[str(place)] for place in places]
    keys, rows = [], []
    for block in file.blocks(how.reporter):
        if keyed:
            keys.append(block[str(key)])
        each = [numbers_of(block[str(place)], file.path) for place in places]
        rows.append([part.astype(np.float64) if file.separator else part for part in each])
    ids = ids_of(polars().concat(keys), file.path, how.exact) if keys else np.zeros(0, np.int64) if keyed else None
    return ids, [np.concatenate(parts) for parts in zip(*rows, strict=True)] if rows else []


def _of_array(path: Path, rows: str) -> Table:
    values = load_npy(path, MAPPED)
    if values.ndim not in (1, 2):
        raise FormatError(f"{path} has shape {values.shape}, expected a row for each node: (n,) or (n, columns)")
    values = values.reshape(len(values), -1)
    if rows == KEYED:
        ids = whole(values[:, 0]) if values.dtype.kind != "U" else np.char.strip(values[:, 0])
        if ids is None or values.shape[1] < 2:
            raise FormatError(f"{path}: expected the ids of the nodes in the first column, and data behind it")
        return Table(ids, values[:, 1:], None, "rows keyed by the first column")
    if rows == AUTO and values.shape[1] > 1:
        _check_first(path, None, values[:, 0])
    return Table(None, values, None, "rows in node order")


def _check_first(path: Path, names: Sequence[str] | None, first: "np.ndarray | pl.Series") -> None:
    """FormatError for data by position, whose first column may name the nodes."""
    values = first if isinstance(first, np.ndarray) else typed(first, path)
    if values.ndim != 1:
        return
    what = "the first column" if names is None else f"the first column, {names[0]},"
    if _numbers_all(values) or (names is not None and may_be_id(names[0]) and _distinct(values)):
        raise FormatError(
            f"{path}: {what} may name the nodes, for its {len(values):,} values are distinct; say --rows id if it "
            "does (or head it id), and --rows position if it is data"
        )


def _numbers_all(values: np.ndarray) -> bool:
    """Whether values are the numbers 0..n-1, or 1..n, each once, in any order."""
    numbers = whole(values) if len(values) >= FEW_ROWS else None
    return (
        numbers is not None
        and 0 <= int(numbers.min()) <= int(numbers.max()) <= len(numbers)
        and len(np.unique(numbers)) == len(numbers)
    )


def _distinct(values: np.ndarray) -> bool:
    """Whether each value is an integer or a word, and none is there twice."""
    if values.dtype.kind == "O":
        return len({value for value in values.tolist() if value == value}) == len(values)
    numbers = whole(values)
    return numbers is not None and len(np.unique(numbers)) == len(numbers)
