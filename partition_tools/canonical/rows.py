"""Array-likes of rows, some at a time."""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import DTypeLike

from hpcgnn.graphfile.schema import RowReader
from hpcgnn.graphfile.storage import SLAB_ROWS


def slabs(array: RowReader) -> Iterator[np.ndarray]:
    """The rows of an array-like, at most SLAB_ROWS at a time."""
    return (rows for _, rows in numbered(array))


def numbered(array: RowReader) -> Iterator[tuple[int, np.ndarray]]:
    """(number of the first row, rows) of each of the `slabs`."""
    for start in range(0, array.shape[0], SLAB_ROWS):
        yield start, array[start : start + SLAB_ROWS]


class RowMap:
    """An array-like (n, F) whose rows are `function(rows of source)`, computed when sliced. columns: F, if the
    source has another.
    """

    def __init__(
        self,
        source: RowReader,
        function: Callable[[np.ndarray], np.ndarray],
        dtype: DTypeLike,
        columns: int | None = None,
    ) -> None:
        self.source, self.function, self.dtype = source, function, np.dtype(dtype)
        self.shape = tuple(source.shape) if columns is None else (source.shape[0], columns)

    def __getitem__(self, rows: slice) -> np.ndarray:
        return self.function(self.source[rows])
