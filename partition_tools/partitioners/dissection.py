"""Nested dissection: a graph is split into eight parts, each of those into eight, and so on down to K clusters.

Clusters are numbered in that order. Maps of the clusters to a few ranks have fewer halo rows than after one call for
all K clusters: as few as a split into that many parts alone. The reason: the large cuts are chosen on the whole graph,
not among the borders of small clusters. Consecutive clusters are neighbours at every scale, an order that suits caches.

A function splits a graph: METIS's or KaMinPar's. `weights` has the weights of nodes and edges.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.sparse

from hpcgnn.graphfile.schema import Edges
from partition_tools.graph.counts import blocks
from partition_tools.graph.edges import index_dtype
from partition_tools.partitioners.request import ClusterRequest, Clusters
from partition_tools.partitioners.weights import (
    BRANCHES,
    at_most_a_part,
    clusters_of_connected,
    edge_weights,
    weigh_graph,
    with_isolated,
)

BLOCK = 1 << 24
Split = Callable[[scipy.sparse.csr_matrix, np.ndarray, np.ndarray, int], np.ndarray]
"""split(graph, vertex weights int64 (n,), shares int (parts,), seed) -> the part of each node, int (n,).

The data of the graph are weights of the edges; shares are the relative weights of the parts. Parts may come out empty.
"""


@dataclass
class Part:
    """A part to split. nodes: int64 (m,), ids in the whole graph. weights: int64 (m,), of the nodes.

    graph: scipy CSR (m, m) of edge weights uint8, symmetric, without self loops and parallel edges.
    """

    nodes: np.ndarray
    graph: scipy.sparse.csr_matrix
    weights: np.ndarray


def whole_graph(edges: Edges, edges_out: Edges | None) -> Part:
    """The part of a graph that takes part in a split (`weights`). edges, edges_out: as in `GraphData`."""
    weighed = weigh_graph(edges, edges_out)
    matrix = _directed(edges, weighed.hubs, weighed.nodes)
    matrix = matrix if edges_out is None else (matrix + matrix.T.tocsr()).tocsr()
    matrix.data = matrix.data.astype(np.uint8)
    if weighed.pull is not None:
        for start, weights in edge_weights(weighed.pull, matrix.indptr, blocks(matrix.indices, BLOCK)):
            matrix.data[start : start + len(weights)] = weights
    return Part(weighed.nodes, matrix, weighed.weights)


def _directed(edges: Edges, hubs: np.ndarray | None, nodes: np.ndarray) -> scipy.sparse.csr_matrix:
    """The pattern of in-edges between `nodes`, bool, without self loops, parallel edges and those between hubs."""
    row = np.repeat(np.arange(len(edges.indptr) - 1, dtype=edges.indices.dtype), np.diff(edges.indptr))
    keep = edges.indices != row
    keep[1:] &= (edges.indices[1:] != edges.indices[:-1]) | (row[1:] != row[:-1])
    if hubs is not None:
        keep &= ~(hubs[row] & hubs[edges.indices])
    del row
    indptr = np.concatenate([[0], np.cumsum(keep, dtype=np.int64)])[edges.indptr]
    indices = edges.indices[keep]
    if hubs is not None:
        indptr, indices = np.concatenate([[0], indptr[nodes + 1]]), numbers(nodes, len(hubs))[indices]
    return scipy.sparse.csr_matrix((np.ones(len(indices), bool), indices, indptr), shape=(len(nodes),) * 2)


def numbers(nodes: np.ndarray, num_nodes: int) -> np.ndarray:
    """The place of each node among `nodes`, int (n,); anything for others. nodes: int64 (m,), rising."""
    number = np.zeros(num_nodes, index_dtype(num_nodes))
    number[nodes] = np.arange(len(nodes))
    return number


def dissected(asked: ClusterRequest, split: Split) -> Clusters:
    """The clusters of a graph in memory. split: as for `dissect`."""
    part, num_nodes = whole_graph(asked.edges, asked.edges_out), len(asked.edges.indptr) - 1
    count = clusters_of_connected(num_nodes, len(part.nodes), asked.num_clusters)
    order, offsets = dissect(part.graph, count, split, asked.seed, asked.progress, part.weights)
    asked.progress(asked.num_clusters - count)
    return with_isolated(np.split(part.nodes[order], offsets[1:-1]), part.nodes, num_nodes, asked.num_clusters)


def dissect(
    graph: scipy.sparse.csr_matrix,
    num_clusters: int,
    split: Split,
    seed: int,
    progress: Callable[[int], object],
    weights: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """(order int64 (n,) of old node ids, offsets int64 (K + 1,)) of exactly `num_clusters` clusters, none of them
    empty.

    graph: as in `Part`. Nodes of a cluster stay in their old order. progress: called with the number of clusters just
    finished. weights: of the nodes, int64 (n,). Needs n >= K. Deterministic where `split` is.
    """
    leaves = []
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
        side = np.asarray(split(part_of_graph, at_most_a_part(weights, shares), shares, seed))
        enough(side, shares)
        for part in reversed(range(len(shares))):
            inside = np.flatnonzero(side == part)
            below = part_of_graph[inside][:, inside] if shares[part] > 1 else None
            pending.append((nodes[inside], below, weights[inside], int(shares[part])))
        del part_of_graph
    return np.concatenate(leaves), np.concatenate([[0], np.cumsum([len(leaf) for leaf in leaves])])


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
