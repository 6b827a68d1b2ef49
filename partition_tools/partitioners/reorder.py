"""The same graph with its nodes in another order: everything indexed by node or by edge moves, its name and keys do
not.

`original_id` keeps the import order, which keys all randomness in training, so a reordered graph trains to the same
curve.
"""

import dataclasses
from typing import cast

import numpy as np

from hpcgnn.graphfile.ranges import permuted_rows, segments
from hpcgnn.graphfile.schema import GraphData, Rows
from hpcgnn.graphfile.storage import SLAB_ROWS, Csr, Edges
from partition_tools.canonical.edge_features import Counted, GatheredRows, WindowedRows, row_bytes

EDGE_BLOCK = 1 << 23


def reordered(
    data: GraphData,
    order: np.ndarray,
    offsets: np.ndarray,
    *,
    buffer_bytes: int,
    cluster_graph: Csr | None = None,
    versions: dict[str, str] | None = None,
) -> GraphData:
    """`GraphData` whose node i is node order[i] of `data`, clustered by `offsets`.

    order: int64 (n,) permutation. Dense features are permuted when they are written, in windows of at most
    `buffer_bytes` (features that fit are read once). Memory: the new edges beside the old ones, and one window.
    """
    place = np.empty(len(order), data.edges.indices.dtype)
    place[order] = np.arange(len(order))
    features: Rows | Csr | None
    if isinstance(data.features, Csr):
        features = permuted_csr(data.features, order)
    else:
        features = None if data.features is None else PermutedRows(data.features, order, place, buffer_bytes)
    edges = permuted_edges(numbered_edges(data), order, place)
    edges_out = None if data.edges_out is None else permuted_edges(data.edges_out, order, place)
    moved = in_order_of(data, order, offsets, edges, edges_out, features, versions or data.versions, buffer_bytes)
    return dataclasses.replace(moved, cluster_graph=cluster_graph)


def in_order_of(
    data: GraphData,
    order: np.ndarray,
    offsets: np.ndarray,
    edges: Edges,
    edges_out: Edges | None,
    features: Rows | Csr | None,
    versions: dict[str, str],
    buffer_bytes: int,
) -> GraphData:
    """`GraphData` with these edges and features, which are in the new order already, and the rest brought into it.

    edges: those of `numbered_edges`, moved. buffer_bytes: of a window of features of edges.
    """
    of_edges = data.edge_features
    return dataclasses.replace(
        data,
        edges=dataclasses.replace(edges, row=None),
        edge_features=None
        if of_edges is None or edges.row is None
        else GatheredRows(of_edges, edges.row, buffer_bytes),
        edges_out=edges_out,
        features=features,
        labels=data.labels[order],
        split=data.split[order],
        original_id=data.original_id[order],
        node_type=None if data.node_type is None else data.node_type[order],
        cluster_offsets=offsets,
        cluster_graph=None,
        versions=versions,
    )


def numbered_edges(data: GraphData) -> Edges:
    """The in-edges of `data`, which know which row of its features of edges is theirs, where it has some."""
    if data.edge_features is None:
        return data.edges
    return dataclasses.replace(data.edges, row=cast(np.ndarray, Counted(len(data.edges.indices))))


def permuted_edges(edges: Edges, order: np.ndarray, place: np.ndarray) -> Edges:
    """Canonical `Edges` after renumbering, block by block of new rows. Parallel edges keep their order among
    themselves."""
    counts = np.diff(edges.indptr)[order]
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    starts, n = edges.indptr[:-1][order], len(order)
    carried = {name: getattr(edges, name) for name in ("weight", "type", "row") if getattr(edges, name) is not None}
    new = Edges(
        indptr,
        np.empty_like(edges.indices),
        **{name: np.empty(len(edges.indices), values.dtype) for name, values in carried.items()},
    )
    start = 0
    while start < n:
        stop = min(n, max(start + 1, int(np.searchsorted(indptr, indptr[start] + EDGE_BLOCK, side="right")) - 1))
        there = slice(indptr[start], indptr[stop])
        old = segments(starts[start:stop], counts[start:stop])
        key = np.repeat(np.arange(stop - start) * np.int64(n), counts[start:stop]) + place[edges.indices[old]]
        if carried:
            turn = np.argsort(key, kind="stable")
            key, old = key[turn], old[turn]
            for name, values in carried.items():
                getattr(new, name)[there] = values[old]
        else:
            key.sort()
        new.indices[there] = key % n
        start = stop
    return new


def permuted_csr(rows: Csr, order: np.ndarray) -> Csr:
    """The sparse matrix whose row i is row order[i] of that given."""
    indptr, old = permuted_rows(rows.indptr, order)
    return Csr(indptr, rows.indices[old], None if rows.data is None else rows.data[old], rows.num_columns)


class PermutedRows(WindowedRows):
    """Array-like whose row i is row order[i] of `source`. A window is filled by one pass over the source: fewer, larger
    windows mean fewer passes. place: the inverse of order.
    """

    def __init__(self, source: Rows, order: np.ndarray, place: np.ndarray, buffer_bytes: int) -> None:
        super().__init__(source, source.shape[0], max(row_bytes(source), 1), buffer_bytes)
        self.order, self.place = order, place

    def _read(self) -> None:
        for first in range(0, self.shape[0], SLAB_ROWS):
            last = min(first + SLAB_ROWS, self.shape[0])
            targets = self.place[first:last]
            wanted = (targets >= self.start) & (targets < self.stop)
            if wanted.any():
                self.window[targets[wanted] - self.start] = self.source[first:last][wanted]
