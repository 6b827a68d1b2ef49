"""Nested dissection: a graph is split into eight parts, each of those into eight, and so on down to K clusters.

Clusters are numbered in that order. Maps of the clusters to a few ranks have fewer halo rows than after one call for
all K clusters: as few as a split into that many parts alone. The reason: the large cuts are chosen on the whole graph,
not among the borders of small clusters. Consecutive clusters are neighbours at every scale, an order that suits caches.

A function splits a graph in memory: METIS's or KaMinPar's. `weights` has the weights of nodes and edges. A graph that
does not fit is first cut on disk into a few parts, and the edges within each part are written apart. So the large cuts
are chosen on the whole graph, and the largest part decides the memory.
"""

from collections.abc import Callable

import numpy as np
import scipy

from partition_tools.partitioners.pattern import Pattern, parts_of, whole_pattern
from partition_tools.partitioners.request import ClusterRequest, Clusters
from partition_tools.partitioners.weights import BRANCHES, at_most_a_part, clusters_of_connected, with_isolated
from partition_tools.workspace.scratch import Scratch

#: Bytes for an edge of a part while it is dissected in memory: the part, its parts, and the process that splits it.
PART_BYTES = 40
Split = Callable[["scipy.sparse.csr_matrix", np.ndarray, np.ndarray, int], np.ndarray]
"""split(graph, vertex weights int64 (n,), shares int (parts,), seed) -> the part of each node, int (n,).

The data of the graph are weights of the edges; shares are the relative weights of the parts. Parts may come out empty.
"""
Cut = Callable[[Pattern, np.ndarray, int], np.ndarray]
"""cut(a graph on disk, shares, seed) -> the same."""


def dissected(asked: ClusterRequest, split: Split, scratch: Scratch, cut: Cut | None = None) -> Clusters:
    """The clusters of a graph whose indices may be anything that slices.

    split: dissects parts that fit in memory. cut: cuts those that do not fit; None: all are dissected in memory.
    Memory: that of `cut` for the whole graph, else the scratch directory's limit, and 40 bytes per node.
    """
    num_clusters, num_nodes = asked.num_clusters, len(asked.edges.indptr) - 1
    whole = whole_pattern(asked.edges, asked.edges_out, scratch)
    connected = clusters_of_connected(num_nodes, len(whole.nodes), num_clusters)
    asked.progress(num_clusters - connected)
    pending, leaves = [(whole, connected)], []
    while pending:
        part, count = pending.pop()
        if count == 1 or cut is None or part.num_entries * PART_BYTES <= scratch.memory:
            leaves += _in_memory(part, count, split, asked)
        else:
            shares = shares_of(count)
            size = f"{len(part.nodes):,} nodes, {part.num_entries:,} edges"
            scratch.reporter.stage(f"splitting {size} into {len(shares)} parts")
            side = cut(part, shares, asked.seed)
            enough(side, shares)
            pending += reversed(list(zip(parts_of(part, side, len(shares)), shares.tolist(), strict=True)))
        part.forget()
    return with_isolated(leaves, whole.nodes, num_nodes, num_clusters)


def shares_of(count: int) -> np.ndarray:
    """The numbers of clusters of the parts that a part of `count` clusters is split into."""
    shares = np.full(min(BRANCHES, count), count // min(BRANCHES, count))
    shares[: count % len(shares)] += 1
    return shares


def _in_memory(part: Pattern, count: int, split: Split, asked: ClusterRequest) -> list[np.ndarray]:
    """The nodes of each of `count` clusters of a part."""
    if count == 1:
        asked.progress(1)
        return [part.nodes]
    indices, heavy = np.array(part.indices), part.edge_weights()
    values = np.ones(len(indices), np.uint8) if heavy is None else np.concatenate([np.zeros(0, np.uint8), *heavy])
    graph = scipy.sparse.csr_matrix((values, indices, part.indptr), shape=(len(part.nodes),) * 2)
    order, offsets = dissect(graph, count, split, asked.seed, asked.progress, part.weights)
    return np.split(part.nodes[order], offsets[1:-1])


def dissect(
    graph: "scipy.sparse.csr_matrix",
    num_clusters: int,
    split: Split,
    seed: int,
    progress: Callable[[int], object],
    weights: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """(order int64 (n,) of old node ids, offsets int64 (K + 1,)) of exactly `num_clusters` clusters, none of them
    empty.

    graph: symmetric, of edge weights, without self loops and parallel edges. Nodes of a cluster stay in their old
    order. progress: called with the number of clusters just finished. weights: of the nodes, int64 (n,). Needs n >= K.
    Deterministic where `split` is.
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
        shares = shares_of(count)
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
