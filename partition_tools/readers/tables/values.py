"""Columns of a table as arrays: ids as they are written, numbers, and words."""

from typing import TYPE_CHECKING

import numpy as np

from hpcgnn.errors import FormatError
from partition_tools.graph.counts import whole
from partition_tools.readers.tables.frames import is_number, polars

if TYPE_CHECKING:
    import polars as pl

#: Words for no value.
MISSING = ["", "NA", "NaN", "nan"]
_WHOLE = r"^[+-]?[0-9]+(\.0*)?$"


def ids_of(column: "pl.Series", where: object, exact: bool, item: str = "row", first: int = 0) -> np.ndarray:
    """Ids of nodes, integers or text (n,).

    exact: a column that is not of integers alone, as they are printed, is of texts as they stand in the file; else an
    id that is no integer is refused. item, first: the name and the number of the first row, for errors.
    """
    if not len(column):
        return np.zeros(0, np.int64)
    pl = polars()
    empty = column.is_null() | ((column == "") if column.dtype == pl.String else False)
    if empty.any():
        raise FormatError(f"{where}: {item} {first + int(empty.arg_max() or 0)} has no id")
    if column.dtype != pl.String:
        stored = whole(typed(column, where))
        if stored is not None:
            return stored
        raise FormatError(f"{where} holds ids that are {column.dtype}, expected integers or words")
    for kind in (pl.Int64, pl.UInt64) if exact else ():
        numbers = column.cast(kind, strict=False)
        if not numbers.has_nulls() and (numbers.cast(pl.String) == column).all():
            return numbers.to_numpy()
    if exact:
        return column.to_numpy().astype(str)
    numbers = column.cast(pl.Int64, strict=False)
    if numbers.has_nulls():
        plain = column.str.contains(_WHOLE)
        numbers = column.str.replace(r"\.0*$", "").cast(pl.Int64, strict=False)
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
        try:
            return np.array(column.to_list(), np.float64).reshape(len(column), -1)
        except (TypeError, ValueError) as error:
            raise FormatError(f"{where} has lists of different lengths, or of words: {error}") from error
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


def numeric(values: np.ndarray, where: object) -> np.ndarray:
    """Values as numbers; FormatError naming the table otherwise."""
    if values.dtype.kind in "iufb":
        return values
    wrong = next((value for value in values.flat if isinstance(value, str) and not is_number(value)), None)
    if values.dtype.kind not in "OU" or wrong is not None:
        raise FormatError(f"{where} has an entry that is not a number: {values.dtype if wrong is None else wrong!r}")
    try:
        return values.astype(np.float64)
    except (ValueError, TypeError) as error:
        raise FormatError(f"{where} has an entry that is not a number: {error}") from error
