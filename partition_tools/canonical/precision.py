"""Whole numbers that change when they become float32 or float16: counted, with one warning for each array.

Rounding of real numbers is expected, and not counted. Whole numbers beyond 2^24 (seconds since 1970, identifiers)
become others, which changes the meaning of a column.
"""

import numpy as np
from numpy.typing import DTypeLike

from partition_tools.workspace.progress import Reporter

# Whole numbers up to here are exact in each type.
_EXACT = {np.dtype(np.float32): 2**24, np.dtype(np.float16): 2**11}
# Beyond this, floats are whole by their spacing and not by what they mean.
_LARGEST_WHOLE = 2.0**63


class PrecisionLoss:
    """Changed whole numbers in the columns of an array, gathered slab by slab."""

    def __init__(self, what: str, row: str, columns: int, target: DTypeLike) -> None:
        """what: a name for the array. row: a name for one of its rows. target: its new type."""
        self.what, self.row, self.target, self.rows = what, row, np.dtype(target), 0
        self.whole = np.ones(columns, bool)
        self.rounded = np.zeros(columns, np.int64)
        self.example: tuple[int, str] | None = None

    def add(self, before: np.ndarray, after: np.ndarray) -> None:
        """Rows (m, C), finite, before and after the conversion."""
        if not len(before) or before.dtype == after.dtype or before.dtype.kind not in "iuf":
            return
        if before.dtype.kind == "f" and before.dtype.itemsize <= after.dtype.itemsize:
            return
        size = np.abs(before.astype(np.float64, copy=False))
        if before.dtype.kind == "f":
            self.whole &= ((before == np.rint(before)) & (size < _LARGEST_WHOLE)).all(axis=0)
        large = size > _EXACT[self.target]
        if large.any():
            # Compared in the wider of both types: int64 beyond 2^53 does not fit in float64 either.
            other = large & (np.asarray(after, np.longdouble) != np.asarray(before, np.longdouble))
            self.rounded += np.count_nonzero(other, axis=0)
            if self.example is None and other.any():
                row, column = (int(place[0]) for place in np.nonzero(other))
                self.example = self.rows + row, str(before[row, column])
        self.rows += len(before)

    def tell(self, reporter: Reporter) -> None:
        """Warn of whole numbers that change."""
        columns = np.flatnonzero(self.whole & (self.rounded > 0)).tolist()
        if columns and self.example is not None:
            reporter.warn(
                f"{self.what}: {self.rounded[columns].sum():,} whole numbers beyond {_EXACT[self.target]:,} change "
                f"as {self.target} (columns {', '.join(map(str, columns[:5]))}{', ...' if len(columns) > 5 else ''}, "
                f"such as {self.example[1]} of {self.row} {self.example[0]}); subtract an offset, or scale them"
            )
