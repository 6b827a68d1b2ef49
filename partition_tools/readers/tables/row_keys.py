"""The node of each row: the first column of a table names the nodes, or the rows go by position.

A table that names nodes and is read by position gives every node the data of another, and nothing fails. So rows go by
position only if nothing names the nodes, or by `--rows position`. A first column that may name them, but need not, is
an error that asks.
"""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from hpcgnn.errors import FormatError
from partition_tools.graph.counts import whole
from partition_tools.readers.tables.headings import is_id, may_be_id

AUTO, POSITION, KEYED = "auto", "position", "id"
ROWS = (AUTO, POSITION, KEYED)
# Fewer rows may count 0, 1, 2 by chance.
FEW_ROWS = 4
# Rows of the first look at a column.
FIRST = 1 << 12
_UNNAMED = ("", "unnamed: 0", "__index_level_0__")

#: What the first column of a table is: data, the ids of the nodes, or the numbers of the rows, which are neither.
DATA, IDS, ROW_NUMBERS = "data", "ids", "row numbers"


def first_column(path: Path, names: Sequence[str] | None, values: np.ndarray, others: int, rows: str = AUTO) -> str:
    """DATA, IDS or ROW_NUMBERS: the meaning of a table's first column.

    Args:
        names: The heading, or None.
        values: The first column, (n,).
        others: The number of other columns.
        rows: One of ROWS, the user's choice.

    Raises:
        FormatError: The column may name the nodes, or not; or it should, and cannot.
    """
    name = None if names is None else str(names[0]).strip()
    unnamed = name is not None and name.lower() in _UNNAMED
    if rows == KEYED:
        if not others:
            raise FormatError(f"{path} has one column, expected the ids of the nodes and data (--rows id)")
        return IDS
    if unnamed and others and _counts_rows(values):
        return ROW_NUMBERS
    named = name is not None and is_id(name, others)
    if rows == POSITION:
        return ROW_NUMBERS if others and (unnamed or named) else DATA
    if named:
        return IDS
    if not others or not len(values):
        return DATA
    if unnamed:
        if not _distinct(values):
            raise FormatError(
                f"{path}: the first column has no name, and is no id for it names a node twice or none; give it a "
                "heading (id for the ids of the nodes), or take it out"
            )
        return IDS
    what = "the first column" if name is None else f"the first column, {name},"
    if _numbers_all(values) or (name is not None and may_be_id(name) and _distinct(values)):
        raise FormatError(
            f"{path}: {what} may name the nodes, for its {len(values):,} values are distinct; say --rows id if it "
            "does (or head it id), and --rows position if it is data"
        )
    return DATA


def check_later_columns(path: Path, names: Sequence[str] | None, column: Callable[[int], np.ndarray]) -> None:
    """Raise FormatError for a column behind the first that names the nodes as well.

    names: the heading, or None. column: gives the values of one.
    """
    for place, name in enumerate(names or ()):
        name = re.sub(r"\.\d+$", "", str(name))  # pandas numbers columns of one name
        if not place or not (name == "" or is_id(name, 1)):
            continue
        values = column(place) if name == "" or not is_id(name, 0) else None
        if values is None or (len(values) >= FEW_ROWS and (_numbers_all(values) if name == "" else _distinct(values))):
            raise FormatError(
                f"{path}: the column {name or place + 1} is not the first; expected the ids of the nodes in the first "
                "column, before what is known of them (--rows position: no column names the nodes)"
            )


def _counts_rows(values: np.ndarray) -> bool:
    """Whether values are 0, 1, 2, …: the numbers of the rows, which pandas writes without a name."""
    return values.dtype.kind in "iu" and np.array_equal(values, np.arange(len(values)))


def _numbers_all(values: np.ndarray) -> bool:
    """Whether values are the numbers 0..n-1, or 1..n, each once, in any order."""
    n = len(values)
    if n < FEW_ROWS:
        return False
    for part in (values[:FIRST], values):
        numbers = whole(np.asarray(part))
        if numbers is None or not 0 <= int(numbers.min()) <= int(numbers.max()) <= n or not _distinct(numbers):
            return False
    return True


def _distinct(values: np.ndarray) -> bool:
    """Whether each value is an integer or a word, and none is there twice."""
    if values.dtype.kind in "OU":
        texts = [str(value).strip() for value in values if value is not None and value == value]
        return len(set(texts)) == len(values) and "" not in texts
    numbers = whole(values)
    return numbers is not None and len(np.unique(numbers)) == len(numbers)
