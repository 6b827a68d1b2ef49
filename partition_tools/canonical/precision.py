"""Losses when numbers become float32 or float16: counted, with one warning for each array.

Rounding of real numbers is expected, and not counted. Three losses change the meaning of a column. Whole numbers beyond
2^24 (seconds since 1970, identifiers) become others, small numbers become 0, and values that differ become one.
"""

import numpy as np

from partition_tools.workspace.progress import Reporter

# Whole numbers up to here are exact in each type.
_EXACT = {np.dtype(np.float32): 2**24, np.dtype(np.float16): 2**11}
# Beyond this, floats are whole by their spacing and not by what they mean.
_LARGEST_WHOLE = 2.0**63


class PrecisionLoss:
    """Losses of the columns of an array, gathered slab by slab."""

    def __init__(self, what: str, row: str, columns: int, target: np.typing.DTypeLike) -> None:
        """what: a name for the array. row: a name for one of its rows. target: its new type."""
        self.what, self.row, self.target, self.rows = what, row, np.dtype(target), 0
        self.whole = np.ones(columns, bool)
        self.rounded = np.zeros(columns, np.int64)
        self.vanished = np.zeros(columns, np.int64)
        self.low, self.high = np.full(columns, np.inf), np.full(columns, -np.inf)
        self.low_after, self.high_after = self.low.copy(), self.high.copy()
        self.example: tuple[int, int, str] | None = None

    def add(self, before: np.ndarray, after: np.ndarray) -> None:
        """Rows (m, C), finite, before and after the conversion."""
        if not len(before) or before.dtype == after.dtype or before.dtype.kind not in "iuf":
            return
        if before.dtype.kind == "f" and before.dtype.itemsize <= after.dtype.itemsize:
            return
        self.vanished += np.count_nonzero((before != 0) & (after == 0), axis=0)
        wide = before.astype(np.float64, copy=False)
        size = np.abs(wide)
        if before.dtype.kind == "f":
            self.whole &= ((before == np.rint(before)) & (size < _LARGEST_WHOLE)).all(axis=0)
        large = size > _EXACT[self.target]
        if large.any():
            # Compared in the wider of both types: int64 beyond 2^53 does not fit in float64 either.
            other = large & (np.asarray(after, np.longdouble) != np.asarray(before, np.longdouble))
            self.rounded += np.count_nonzero(other, axis=0)
            if self.example is None and other.any():
                row, column = (int(place[0]) for place in np.nonzero(other))
                self.example = self.rows + row, column, str(before[row, column])
        self.low, self.high = np.minimum(self.low, wide.min(axis=0)), np.maximum(self.high, wide.max(axis=0))
        later = after.astype(np.float64)
        self.low_after = np.minimum(self.low_after, later.min(axis=0))
        self.high_after = np.maximum(self.high_after, later.max(axis=0))
        self.rows += len(before)

    def tell(self, reporter: Reporter) -> None:
        """Warn of the losses."""
        for text in self.warnings():
            reporter.warn(text)

    def warnings(self) -> list[str]:
        """One line for each kind of loss."""
        lines = []
        rounded = np.flatnonzero(self.whole & (self.rounded > 0))
        if len(rounded):
            some = "" if self.example is None else f", such as {self.example[2]} of {self.row} {self.example[0]}"
            lines.append(
                f"{self.what}: {self.rounded[rounded].sum():,} whole numbers beyond {_EXACT[self.target]:,} change "
                f"as {self.target} (columns {_some(rounded)}{some}); subtract an offset, or scale them"
            )
        vanished = np.flatnonzero(self.vanished)
        if len(vanished):
            lines.append(
                f"{self.what}: {self.vanished.sum():,} numbers that are not 0 become 0 as {self.target} (columns "
                f"{_some(vanished)}); scale them"
            )
        one = np.flatnonzero((self.high > self.low) & (self.high_after == self.low_after))
        if len(one):
            lines.append(
                f"{self.what}: the values of columns {_some(one)} differ, and are one number as {self.target}; "
                "subtract an offset, or scale them"
            )
        return lines


def _some(columns: np.ndarray) -> str:
    return ", ".join(map(str, columns[:5].tolist())) + (", ..." if len(columns) > 5 else "")
