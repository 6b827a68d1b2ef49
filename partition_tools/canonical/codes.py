"""Dense features in bytes: as they are where all are small whole numbers, else rounded to codes of a factor for each
column.
"""

from collections.abc import Callable

import numpy as np

from hpcgnn.graphfile.narrow import codes_of, scales_for
from hpcgnn.graphfile.schema import RowReader
from partition_tools.canonical.rows import RowMap, numbered, slabs
from partition_tools.workspace.progress import Reporter

# Rows that are compared with their codes at a time, in float64.
_FEW = 1 << 12


class Codes(RowMap):
    """The codes (n, F) of numbers, int8. scales: see graphfile/narrow.py."""

    def __init__(self, source: RowReader, scales: np.ndarray) -> None:
        super().__init__(source, lambda rows: codes_of(rows, scales), np.int8)
        self.scales = scales


def in_bytes(features: RowReader, check: Callable[[np.ndarray, int], object], reporter: Reporter) -> RowReader:
    """int8 (n, F) for numbers (n, F): themselves, or `Codes`, whose error the reporter is told. They are read twice.

    check(rows, number of the first): raises where they are not finite.
    """
    whole, largest = True, np.zeros(features.shape[1])
    for first, slab in numbered(features):
        check(slab, first)
        most, least = (np.asarray(end(axis=0), np.float64) for end in (slab.max, slab.min))
        largest = np.maximum(largest, np.maximum(most, -least))
        with np.errstate(invalid="ignore"):
            whole = whole and bool((slab.astype(np.int8) == slab).all())
    if whole:
        return features if features.dtype == np.int8 else RowMap(features, lambda rows: rows.astype(np.int8), np.int8)
    codes = Codes(features, scales_for(largest))
    lost, size = np.zeros(features.shape[1]), np.zeros(features.shape[1])
    for slab in slabs(features):
        for start in range(0, len(slab), _FEW):
            rows = slab[start : start + _FEW].astype(np.float64)
            error = codes.function(rows) * codes.scales.astype(np.float64) - rows
            lost += np.square(error).sum(axis=0)
            size += np.square(rows).sum(axis=0)
    each = np.sqrt(lost / np.where(size > 0, size, 1))
    worst = int(np.argmax(each))
    reporter.warn(
        f"features: rounded to a byte for each number and a factor for each column, with a relative error of "
        f"{np.sqrt(lost.sum() / size.sum()):.1e} ({each[worst]:.1e} in column {worst})"
    )
    return codes
