"""The same graph with its nodes in another order: everything indexed by node or by edge moves, its name and keys do
not.

`original_id` keeps the import order, which keys all randomness in training, so a reordered graph trains to the same
curve.
"""

import dataclasses
from typing import cast

import numpy as np

from hpcgnn.graphfile.ranges import permuted_rows, row_blocks, segments
from hpcgnn.graphfile.schema import GraphData, Rows
from hpcgnn.graphfile.storage import SLAB_ROWS, Csr, Edges
from partition_tools.canonical.edge_features import Counted, GatheredRows, row_bytes
from partition_tools.out_of_core.edges import resorted
from partition_tools.out_of_core.scattered import Scattered
from partition_tools.workspace.scratch import Scratch

EDGE_BLOCK = 1 << 23


def reordered(
    data: GraphData,
    order: np.ndarray,
    offsets: np.ndarray,
    scratch: Scratch,
    versions: dict[str, str],
    on_disk: bool = False,
) -> GraphData:
    """`GraphData` whose node i is node order[i] of `data`, clustered by `offsets`, without a graph of the clusters.

    order: int64 (n,) permutation. on_disk: the edges are anything that slices, and are sorted in files; else they are
    in memory. The result is the same, bit for bit. Dense features that do not fit in half of the memory go through
    files. Memory: the new edges and the old ones, or the scratch directory's limit; 40 bytes per node.
    """
    n = len(order)
    place = np.empty(n, np.int64 if on_disk else data.edges.indices.dtype)
    place[order] = np.arange(n)

    def moved(edges: Edges, name: str) -> Edges:
        if not on_disk:
            return permuted_edges(edges, order, place)
        return resorted(edges, lambda row, column: place[row] * n + place[column], name, scratch)

    numbered, of_edges = data.edges, data.edge_features
    if of_edges is not None:  # each edge knows which row of the features is its own
        numbered = dataclasses.replace(data.edges, row=cast(np.ndarray, Counted(len(data.edges.indices))))
    edges = moved(numbered, "reordered")
    edges_out = None if data.edges_out is None else moved(data.edges_out, "reordered_out")
    if of_edges is not None and edges.row is not None:
        of_edges = GatheredRows(of_edges, edges.row, scratch.memory // 4)
    return dataclasses.replace(
        data,
        edges=dataclasses.replace(edges, row=None),
        edge_features=of_edges,
        edges_out=edges_out,
        features=_features_in_order(data.features, order, place, scratch),
        labels=data.labels[order],
        split=data.split[order],
        original_id=data.original_id[order],
        node_type=None if data.node_type is None else data.node_type[order],
        cluster_offsets=offsets,
        cluster_graph=None,
        versions=versions,
    )


def _features_in_order(
    features: Rows | Csr | None, order: np.ndarray, place: np.ndarray, scratch: Scratch
) -> Rows | Csr | None:
    """Array-like of the features in the new order. place: the inverse of order."""
    if features is None:
        return None
    if isinstance(features, Csr):
        indptr, old = permuted_rows(features.indptr, order)
        values = None if features.data is None else features.data[old]
        return Csr(indptr, features.indices[old], values, features.num_columns)
    size = max(row_bytes(features), 1)
    window = max(1, scratch.memory // (2 * size) // SLAB_ROWS) * SLAB_ROWS
    if len(order) > window:
        return Scattered(features, place, window, SLAB_ROWS, scratch)
    return GatheredRows(features, order, (len(order) + SLAB_ROWS) * (size + 24))  # read once


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
    for start, stop in row_blocks(indptr, EDGE_BLOCK):
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
    return new
