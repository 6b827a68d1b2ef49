"""Features of edges on their way into the file: checked, and put in the order in which the file has the edges.

They may be most of the bytes of a graph. So they stay in their array, mostly a mapped one. The edges are sorted with
the numbers of their rows, and the rows are gathered when they are written. An edge and the reverse that
`--undirected` adds have one row in the source, and two in the file.
"""

import numpy as np

from hpcgnn.errors import GraphError
from hpcgnn.graphfile.schema import RowReader
from hpcgnn.graphfile.storage import SLAB_ROWS
from partition_tools.canonical.precision import PrecisionLoss
from partition_tools.canonical.rows import RowMap, numbered
from partition_tools.graph.raw import check_finite
from partition_tools.workspace.progress import Reporter


class Counted:
    """0, 1, 2, … count - 1, as an array-like of int64 that is made where it is asked for."""

    def __init__(self, count: int) -> None:
        self.shape, self.dtype = (count,), np.dtype(np.int64)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, wanted: slice | np.ndarray) -> np.ndarray:
        return np.arange(*wanted.indices(len(self))) if isinstance(wanted, slice) else np.asarray(wanted, np.int64)


def row_bytes(source: RowReader) -> int:
    """Of a row of an array-like."""
    return int(np.prod(source.shape[1:], dtype=np.int64)) * np.dtype(source.dtype).itemsize


class GatheredRows:
    """Array-like whose row i is row index[i] of `source`, made to be sliced from front to back.

    index: int64 (m,), anything that slices. A pass over the source in its own order fills a window of at most
    `buffer_bytes`; it leaves out slabs without a wanted row. Random reads of a chunked file would decompress a chunk
    per row.
    """

    def __init__(self, source: RowReader, index: RowReader, buffer_bytes: int) -> None:
        self.source, self.index = source, index
        self.shape, self.dtype = (index.shape[0], *source.shape[1:]), np.dtype(source.dtype)
        # Beside a row of the window: its number, its place in the order of the numbers, and the numbers in order.
        self.rows = max(buffer_bytes // (row_bytes(source) + 24) // SLAB_ROWS, 1) * SLAB_ROWS
        self.start = self.stop = 0
        self.window = np.empty((0, *self.shape[1:]), self.dtype)

    def __getitem__(self, rows: slice) -> np.ndarray:
        start, stop, _ = rows.indices(self.shape[0])
        if not self.start <= start <= stop <= self.stop:
            self._fill(start, min(max(stop, start + self.rows), self.shape[0]))
        return self.window[start - self.start : stop - self.start]

    def _fill(self, start: int, stop: int) -> None:
        del self.window  # before its successor is made
        self.window = np.empty((stop - start, *self.shape[1:]), self.dtype)
        self.start, self.stop = start, stop
        index = np.asarray(self.index[start:stop])
        order = np.argsort(index, kind="stable")
        index = index[order]
        for first in range(0, self.source.shape[0], SLAB_ROWS):
            last = min(first + SLAB_ROWS, self.source.shape[0])
            low, high = np.searchsorted(index, (first, last))
            if low < high:
                self.window[order[low:high]] = self.source[first:last][index[low:high] - first]


def canonical_edge_features(features: RowReader, num_edges: int, reporter: Reporter) -> RowReader:
    """float32 (E, F) array-like of the features of the edges of a source, in its order. GraphError for any others.

    features: numbers (E,), which are one column, or (E, F), F at least 1, none of them NaN or infinite as float32.
    """
    if len(features.shape) not in (1, 2) or features.shape[0] != num_edges:
        raise GraphError(
            f"expected one row of edge features for each of {num_edges} edges, got shape {tuple(features.shape)}"
        )
    if features.dtype.kind not in "iufb":
        raise GraphError(f"edge features must be numbers, got {features.dtype}")
    if len(features.shape) == 2 and features.shape[1] == 0:
        raise GraphError("the edge features have no columns; leave them out, or give each edge at least one")
    columns = features.shape[1] if len(features.shape) == 2 else 1
    source, loss = features, PrecisionLoss("features of edges", "edge", columns, np.float32)
    if features.dtype != np.float32 or len(features.shape) == 1:
        features = RowMap(features, _as_float32, np.float32, columns)
    for first, before in numbered(source):
        slab = _as_float32(before)
        check_finite(slab, range(first, first + len(slab)), " as float32", "edge features", "edge")
        loss.add(before.reshape(len(before), -1), slab)
    loss.tell(reporter)
    return features


def _as_float32(rows: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # what is too large becomes infinite
        return rows.reshape(len(rows), -1).astype(np.float32, copy=False)
