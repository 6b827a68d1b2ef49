"""Nested dissection: a graph is split into eight parts, each of those into eight, and so on down to K clusters.

Clusters are numbered in that order. Against one call for all K clusters, maps of the clusters to a few ranks have fewer
halo rows, as few as splitting the graph into that many parts alone, because the large cuts were chosen on the whole
graph and not among the borders of small clusters. And consecutive clusters are neighbours at every scale, which is the
order that caches want.

What splits a graph is a function, METIS's or KaMinPar's. It balances one weight, but a rank's memory goes with its
nodes and its time with its edges too. So a node of a skewed graph weighs its degree and something more: then no cluster
is large in either, and maps of clusters to ranks can balance both.

What is to be few is not the edges between parts but the halo rows. A node of many neighbours is wanted everywhere
whatever is done, a node of few only where they are. So on skewed graphs an edge weighs what it will probably save: the
chance that none of the other neighbours of one end is in the part of the other end, and the same the other way.
"""

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import scipy.sparse

from hpcgnn.graphfile.schema import Edges
from hpcgnn.placement.skew import is_skewed

BRANCHES = 8
WEIGHT, KEPT, FEW = 16, 1 - 1 / BRANCHES, 256  # of an edge to a leaf; what a further neighbour leaves of it; degrees
BLOCK = 1 << 24
Split = Callable[[scipy.sparse.csr_matrix, np.ndarray, np.ndarray, int], np.ndarray]
"""split(graph, vertex weights int64 (n,), shares int (parts,), seed) -> the part of each node, int (n,).

The data of the graph are weights of the edges; shares are the relative weights of the parts. Parts may come out empty.
"""


def dissect(
    graph: scipy.sparse.csr_matrix,
    num_clusters: int,
    split: Split,
    seed: int = 0,
    progress: Callable[[int], object] = lambda count: None,
    weights: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """(order int64 (n,) of old node ids, offsets int64 (K + 1,)) of exactly `num_clusters` clusters, none of them
    empty.

    graph: as `pattern` makes it. Nodes of a cluster stay in their old order. progress: called with the number of
    clusters just finished. weights: of the nodes, int64 (n,), None for `node_weights`. Needs n >= K. Deterministic
    where `split` is.
    """
    leaves = []
    weights = node_weights(np.diff(graph.indptr)) if weights is None else weights
    pending = [(np.arange(graph.shape[0]), graph, weights, num_clusters)]
    del graph
    while pending:
        nodes, part_of_graph, weights, count = pending.pop()
        if count == 1:
            leaves.append(nodes)
            progress(1)
            continue
        shares = np.full(min(BRANCHES, count), count // min(BRANCHES, count))
        shares[: count % len(shares)] += 1
        side = np.asarray(split(part_of_graph, weights, shares, seed))
        enough(side, shares)
        for part in reversed(range(len(shares))):
            inside = np.flatnonzero(side == part)
            below = part_of_graph[inside][:, inside] if shares[part] > 1 else None
            pending.append((nodes[inside], below, weights[inside], int(shares[part])))
        del part_of_graph
    return np.concatenate(leaves), np.concatenate([[0], np.cumsum([len(leaf) for leaf in leaves])])


def node_weights(degrees: np.ndarray) -> np.ndarray:
    """What a node counts for when a graph is split, int64 (n,): 1, or on skewed graphs its degree and something more.

    That is for its being a node: the mean degree, less where there are isolated nodes, which can go anywhere and even
    out the numbers of nodes in the end. degrees: int (n,).
    """
    if not is_skewed(degrees):
        return np.ones(len(degrees), np.int64)
    connected = np.count_nonzero(degrees) / len(degrees)
    mean = degrees.sum(dtype=np.int64) / len(degrees)
    return np.asarray(degrees, np.int64) + max(int(round(mean * connected**1.5)), 1)


def pattern(edges: Edges, edges_out: Edges | None) -> scipy.sparse.csr_matrix:
    """What is split, as a scipy CSR matrix of edge weights uint8: symmetric, without self loops and parallel edges."""
    n = len(edges.indptr) - 1
    row = np.repeat(np.arange(n, dtype=edges.indices.dtype), np.diff(edges.indptr))
    keep = edges.indices != row
    keep[1:] &= (edges.indices[1:] != edges.indices[:-1]) | (row[1:] != row[:-1])
    del row
    indptr = np.concatenate([[0], np.cumsum(keep, dtype=np.int64)])[edges.indptr]
    indices = edges.indices[keep]
    matrix = scipy.sparse.csr_matrix((np.ones(len(indices), bool), indices, indptr), shape=(n, n))
    matrix = matrix if edges_out is None else (matrix + matrix.T.tocsr()).tocsr()
    matrix.data = matrix.data.astype(np.uint8)
    degrees = np.diff(matrix.indptr)
    if is_skewed(degrees):
        for start, weights in edge_weights(edge_pull(degrees), matrix.indptr, _blocks(matrix.indices)):
            matrix.data[start : start + len(weights)] = weights
    return matrix


def edge_pull(degrees: np.ndarray) -> np.ndarray:
    """uint8 (n,): what a node adds to the weight of each of its edges, by its degree. degrees: int (n,)."""
    alone = np.rint(WEIGHT * KEPT ** np.maximum(np.arange(FEW) - 1, 0))
    return np.maximum(alone[np.minimum(degrees, FEW - 1)], 0).astype(np.uint8)


def edge_weights(
    pull: np.ndarray, indptr: np.ndarray, blocks: Iterable[np.ndarray]
) -> Iterator[tuple[int, np.ndarray]]:
    """(number of the first edge, weights uint8) for each block of neighbours of a CSR matrix. pull: see `edge_pull`."""
    start, rows = 0, len(indptr) - 1
    for block in blocks:
        stop = start + len(block)
        first, last = np.searchsorted(indptr, [start, stop], side="right") - 1
        last = min(int(last), rows - 1)
        counts = np.diff(np.clip(indptr[first : last + 2], start, stop))
        weights = np.repeat(pull[first : last + 1], counts) + pull[block]
        yield start, np.maximum(weights, 1)
        start = stop


def _blocks(array: np.ndarray) -> Iterator[np.ndarray]:
    return (array[start : start + BLOCK] for start in range(0, len(array), BLOCK))


def enough(side: np.ndarray, shares: np.ndarray) -> None:
    """Move nodes in place until part i has at least shares[i] of them: parts of a few nodes may come out empty."""
    counts = np.bincount(side, minlength=len(shares))
    for part in np.flatnonzero(counts < shares):
        while counts[part] < shares[part]:
            giver = int(np.argmax(counts - shares))
            moved = np.flatnonzero(side == giver)[-min(counts[giver] - shares[giver], shares[part] - counts[part]) :]
            side[moved] = part
            counts[giver] -= len(moved)
            counts[part] += len(moved)
