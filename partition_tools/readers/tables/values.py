"""Columns of a table as arrays: ids as they are written, numbers, and words."""

from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hpcgnn.errors import FormatError
from partition_tools.graph.counts import whole
from partition_tools.readers.tables.frames import is_number, polars

if TYPE_CHECKING:
    import polars as pl

#: Words for no value, as programs write them.
MISSING = ["", "#N/A", "#NA", "-NaN", "-nan", "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"]
_WHOLE = r"^[+-]?[0-9]+(\.0*)?$"


def ids_of(column: "pl.Series", where: object, exact: bool, item: str = "row", first: int = 0) -> np.ndarray:
    """Ids of nodes, integers or text (n,).

    exact: a column that is not of integers alone, as they are printed, is of texts as they stand in the file; else an
    id that is no integer is refused. item, first: the name and the number of the first row, for errors.
    """
    if not len(column):
        return np.zeros(0, np.int64)
    empty = column.is_null() | ((column == "") if column.dtype == polars().String else False)
    if empty.any():
        raise FormatError(f"{where}: {item} {first + int(empty.arg_max() or 0)} has no id")
    if column.dtype != polars().String:
        stored = whole(typed(column, where))
        if stored is not None:
            return stored
        raise FormatError(f"{where} holds ids that are {column.dtype}, expected integers or words")
    numbers = column.cast(polars().Int64, strict=False)
    if exact:
        same = not numbers.has_nulls() and (numbers.cast(polars().String) == column).all()
        return numbers.to_numpy() if same else column.to_numpy().astype(str)
    if numbers.has_nulls():
        plain = column.str.contains(_WHOLE)
        numbers = column.str.replace(r"\.0*$", "").cast(polars().Int64, strict=False)
        if not plain.all() or numbers.has_nulls():
            wrong = column[int((~plain | numbers.is_null()).arg_max() or 0)]
            raise FormatError(
                f"{where} holds ids that are not integers ({wrong}); --relabel numbers words and the like"
            )
    return numbers.to_numpy()


def typed(column: "pl.Series", where: object) -> np.ndarray:
    """Integers, real numbers with NaN for none, or words (object) with NaN for none; (n, k) of lists of k numbers."""
    pl = polars()
    if column.dtype in (pl.List, pl.Array):
        return _rows_of_lists(column, where)
    if column.dtype.is_numeric() or column.dtype == pl.Boolean:
        return (column.cast(pl.Float64) if column.has_nulls() or column.dtype.is_decimal() else column).to_numpy()
    if column.dtype not in (pl.String, pl.Categorical, pl.Enum):
        raise FormatError(f"{where} holds {column.dtype}, expected numbers or words")
    text = column.cast(pl.String).fill_null("").str.strip_chars()
    numbers = text.cast(pl.Int64, strict=False)
    if not numbers.has_nulls():
        return numbers.to_numpy()
    reals, missing = text.cast(pl.Float64, strict=False), text.is_in(MISSING)
    if (reals.is_not_null() | missing).all():
        return reals.fill_null(np.nan).to_numpy()
    words = text.to_numpy().astype(object)
    words[missing.to_numpy()] = np.nan
    return words


def numbers_of(column: "pl.Series", where: object) -> np.ndarray:
    """Numbers, float64 unless they are integers in the file. Raises FormatError naming the first that is none."""
    return numeric(typed(column, where), where)


def _rows_of_lists(column: "pl.Series", where: object) -> np.ndarray:
    counted = column.list.len() if column.dtype == polars().List else column.arr.len()
    lengths = counted.cast(polars().Int64).fill_null(-1).to_numpy()
    if len(lengths) and (lengths != lengths[0]).any():
        other = int(np.argmax(lengths != lengths[0]))
        got = f"{lengths[other]} numbers" if lengths[other] >= 0 else "none"
        raise FormatError(f"{where} has {lengths[0]} numbers in row 0 and {got} in row {other}")
    return np.array(column.to_list(), np.float64).reshape(len(lengths), -1)


def numeric(values: np.ndarray, where: object) -> np.ndarray:
    """Values as numbers; FormatError naming the table otherwise."""
    if values.dtype.kind in "iufb":
        return values
    if values.dtype.kind not in "OU":
        raise FormatError(f"{where} holds {values.dtype}, expected numbers")
    for value in values.flat:
        if isinstance(value, str) and not is_number(value):
            raise FormatError(f"{where} has an entry that is not a number: {value!r}")
    try:
        return values.astype(np.float64)
    except (ValueError, TypeError) as error:
        raise FormatError(f"{where} has an entry that is not a number: {error}") from error


def check_spelling(path: str | Path, texts: Any) -> None:
    """FormatError if an integer is written in two ways, such as the classes 01 and 1; 1.0 beside 1 is left."""
    numbers: dict[Decimal, str] = {}
    for text in sorted(set(texts)):
        if not is_number(text) or "." in text or text.strip("+-").lower()[:1] in ("n", "i"):
            continue
        other = numbers.setdefault(Decimal(text), text)
        if other != text:
            raise FormatError(f"{path}: {other} and {text} are one number but two texts; write it in one way")
