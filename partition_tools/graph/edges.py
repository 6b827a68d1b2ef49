"""Edges in their one canonical order, and the operations that keep it (`out_of_core` sorts them).

Canonical: grouped by destination, sources ascending within a group. Parallel edges are ordered by type and then by
weight, edges with features then in the order of the input. With that order the transpose by counting sort is canonical
too. So "is this graph its own transpose?" (pattern, multiplicity, weights and types at once) is a comparison of arrays.
The k-th of several parallel edges is the same edge seen from both ends.
"""

import numpy as np
import scipy

from hpcgnn.errors import GraphError
from hpcgnn.graphfile.storage import Edges
from hpcgnn.placement.ownership import MOST_INT32

BLOCK = 1 << 22
# Where more than 1 in 8 edges is parallel, all edges are sorted by all that they carry.
PARALLEL = 8


def index_dtype(num_nodes: int) -> type[np.integer]:
    """The smallest of int32 and int64 that holds every node id."""
    return np.int32 if num_nodes <= MOST_INT32 + 1 else np.int64


def check_endpoints(src: np.ndarray, dst: np.ndarray, num_nodes: int, before: int = 0) -> None:
    """GraphError that names the first edge with an end outside 0..num_nodes-1. src, dst: int (E,). before: the number
    of edges that come before these."""
    if src.shape != dst.shape or src.ndim != 1:
        raise GraphError(
            f"sources and destinations must be two vectors of one length, got shapes {src.shape} and {dst.shape}"
        )
    for role, ids in (("source", src), ("destination", dst)):
        if ids.dtype.kind not in "iu":
            raise GraphError(f"edge {role}s must be integers, got {ids.dtype}")
        if len(ids) and (ids.min() < 0 or ids.max() >= num_nodes):
            edge = int(np.argmax((ids < 0) | (ids >= num_nodes)))
            from_one = not before and min(src.min(), dst.min()) == 1 and max(src.max(), dst.max()) == num_nodes
            raise GraphError(
                f"edge {before + edge} has {role} {ids[edge]}, outside the nodes 0..{num_nodes - 1}; node ids must "
                f"be contiguous from 0 (those of arrays: numpy.unique(edge_index, return_inverse=True))"
                f"{'; they seem to count from 1: subtract 1' if from_one else ''}"
            )


def rows(edges: Edges) -> np.ndarray:
    """The node that each edge is grouped by, int (E,): the other end of `edges.indices`."""
    n = len(edges.indptr) - 1
    return np.repeat(np.arange(n, dtype=index_dtype(n)), np.diff(edges.indptr))


def sorted_order(key: np.ndarray, *then: np.ndarray | None) -> np.ndarray:
    """int64 (m,): the order of keys, of equal ones by the other arrays (None: left out), then as they stand.

    Few edges of most graphs are parallel. Then the other arrays are looked at for these alone, in half the time.
    """
    order = np.argsort(key)
    ordered = key[order]
    equal = np.zeros(len(key) + 1, bool)
    equal[1:-1] = ordered[1:] == ordered[:-1]
    among = np.flatnonzero(equal[1:] | equal[:-1])
    others = [array for array in reversed(then) if array is not None]
    if len(among) > len(key) // PARALLEL:
        return np.lexsort([*others, key])
    some = order[among]
    order[among] = some[np.lexsort([some, *(array[some] for array in others), ordered[among]])]
    return order


def transpose(edges: Edges) -> Edges:
    """The same edges grouped by their other end, canonical again, without rows of features. O(E), a stable counting
    sort.
    """
    n = len(edges.indptr) - 1
    attributed = edges.weight is not None or edges.type is not None
    count = len(edges.indices)
    data = np.arange(count, dtype=index_dtype(count)) if attributed else np.zeros(count, bool)
    turned = scipy.sparse.csr_matrix((data, edges.indices, edges.indptr), shape=(n, n)).tocsc()
    return Edges(
        turned.indptr.astype(np.int64),
        turned.indices.astype(edges.indices.dtype, copy=False),
        *(None if a is None else a[turned.data] for a in (edges.weight, edges.type)),
    )


def firsts(key: np.ndarray, kind: np.ndarray | None) -> np.ndarray:
    """bool (m,): whether an edge is the first of its key and kind. key, kind: sorted."""
    first = np.ones(len(key), bool)
    np.not_equal(key[1:], key[:-1], out=first[1:])
    if kind is not None:
        first[1:] |= kind[1:] != kind[:-1]
    return first


def merged_parallel(
    key: np.ndarray, kind: np.ndarray | None, weight: np.ndarray | None, row: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None, np.ndarray | None]:
    """(keys, kinds, weights, rows) with one edge for all of a key and a kind, of their mean weight and their least row.
    key: int64, sorted, and the kinds of a key too."""
    starts = np.flatnonzero(firsts(key, kind))
    if weight is not None:
        sums = np.add.reduceat(weight.astype(np.float64), starts) if len(starts) else np.zeros(0)
        weight = (sums / np.diff(np.append(starts, len(key)))).astype(np.float32)
    if row is not None:
        row = np.minimum.reduceat(row, starts) if len(starts) else np.zeros(0, np.int64)
    return key[starts], None if kind is None else kind[starts], weight, row


def count_self_loops(edges: Edges) -> int:
    """The number of edges from a node to itself."""
    return int(np.count_nonzero(edges.indices == rows(edges)))
