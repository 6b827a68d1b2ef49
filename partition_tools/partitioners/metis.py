"""METIS clusters by nested dissection into eighths, and maps of clusters to ranks.

The graph is split into eight parts, each of those into eight, and so on down to K clusters, numbered in that order.
Against one METIS call for all K clusters (169,343 nodes, 2.5 M edges, K = 512) this takes 4.2 s instead of 6, and maps
of the clusters to 2..16 ranks have 10 % fewer halo rows, as few as calling METIS for that number of ranks alone (8
ranks: 1.37 per node, against 1.58 and 1.38), because the large cuts were chosen on the whole graph and not among the
borders of small clusters. And consecutive clusters are neighbours at every scale, which is the order that caches want:
in the aggregation kernel, cluster order is worth a factor of two.
"""

from collections.abc import Callable

import numpy as np
import scipy.sparse

from hpcgnn.graphfile.schema import Csr, Edges
from hpcgnn.placement.clusters import map_clusters, metis

NAME = "metis"
HELP = "few edges between ranks"
NEW_FILE = False
BRANCHES = 8


def ranks(sizes: np.ndarray, graph: Csr, num_ranks: int, seed: int) -> np.ndarray:
    """Clusters to ranks, see `hpcgnn.placement.clusters.map_clusters`."""
    return map_clusters(sizes, graph, num_ranks, seed)


def clusters(
    edges: Edges,
    edges_out: Edges | None,
    original_id: np.ndarray,
    num_clusters: int,
    seed: int,
    progress: Callable[[int], object] = lambda count: None,
) -> tuple[np.ndarray, np.ndarray]:
    """(order int64 (n,) of old node ids, offsets int64 (K + 1,)) of exactly `num_clusters` clusters, none of them
    empty.

    Nodes of a cluster stay in their old order. progress: called with the number of clusters just finished. Needs n >=
    K. Memory: METIS with 64-bit ids on the whole graph, see `partition --help`.
    """
    leaves = []
    pending = [(np.arange(len(original_id)), pattern(edges, edges_out), num_clusters)]
    while pending:
        nodes, graph, count = pending.pop()
        if count == 1:
            leaves.append(nodes)
            progress(1)
            continue
        shares = np.full(min(BRANCHES, count), count // min(BRANCHES, count))
        shares[: count % len(shares)] += 1
        side = metis(graph.indptr, graph.indices, None, len(shares), seed, shares=shares)
        enough(side, shares)
        for part in reversed(range(len(shares))):
            inside = np.flatnonzero(side == part)
            below = graph[inside][:, inside] if shares[part] > 1 else None
            pending.append((nodes[inside], below, int(shares[part])))
        del graph
    return np.concatenate(leaves), np.concatenate([[0], np.cumsum([len(leaf) for leaf in leaves])])


def pattern(edges: Edges, edges_out: Edges | None) -> scipy.sparse.csr_matrix:
    """What METIS accepts, as a scipy CSR matrix: symmetric, without self loops and parallel edges."""
    n = len(edges.indptr) - 1
    row = np.repeat(np.arange(n, dtype=edges.indices.dtype), np.diff(edges.indptr))
    keep = edges.indices != row
    keep[1:] &= (edges.indices[1:] != edges.indices[:-1]) | (row[1:] != row[:-1])
    del row
    indptr = np.concatenate([[0], np.cumsum(keep, dtype=np.int64)])[edges.indptr]
    indices = edges.indices[keep]
    matrix = scipy.sparse.csr_matrix((np.ones(len(indices), bool), indices, indptr), shape=(n, n))
    return matrix if edges_out is None else (matrix + matrix.T.tocsr()).tocsr()


def enough(side: np.ndarray, shares: np.ndarray) -> None:
    """Move nodes in place until part i has at least shares[i] of them: METIS may leave parts of a few nodes empty."""
    counts = np.bincount(side, minlength=len(shares))
    for part in np.flatnonzero(counts < shares):
        while counts[part] < shares[part]:
            giver = int(np.argmax(counts - shares))
            moved = np.flatnonzero(side == giver)[-min(counts[giver] - shares[giver], shares[part] - counts[part]) :]
            side[moved] = part
            counts[giver] -= len(moved)
            counts[part] += len(moved)
