"""Weights of nodes and edges in a split, and the parts of a graph with hubs that a split leaves out.

A splitter balances one weight, but a rank's memory grows with its nodes and its time with its edges too. So a node of a
skewed graph weighs its degree and a constant. Then no cluster is large in either, and maps of clusters to ranks can
balance both.

The aim is few halo rows, not few edges between parts. All parts need a hub anyway; a node of few neighbours is needed
only where they are. So on skewed graphs an edge weighs its probable saving. That is the chance that no other neighbour
of one end is in the part of the other end, and the same the other way.

An edge between two hubs saves nothing and is left out. Most edges of a graph of heavy tails are such edges, so the
split takes a small part of the time and memory. A hub with hardly any other neighbours keeps its edges: it may be in a
dense community. Nodes without edges are left out too. They make clusters of their own, which even out the numbers of
nodes in maps.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from hpcgnn.graphfile.ranges import edge_rows, row_blocks
from hpcgnn.graphfile.schema import Edges
from hpcgnn.placement.clusters import fair_share, is_skewed

BRANCHES = 8
WEIGHT, KEPT, FEW = 16, 1 - 1 / BRANCHES, 256  # of an edge to a leaf; what a further neighbour leaves of it; degrees
OTHERS = 4  # edges to others than hubs: a hub with fewer keeps all edges
LARGER = 2  # clusters of nodes without edges, against the mean
FEWEST_CLUSTERS = 512  # with fewer, nodes without edges are dealt to all: a rank may get few clusters
BLOCK = 1 << 22  # edges that are looked at together


@dataclass(frozen=True)
class Weighed:
    """The nodes of a split.

    Attributes:
        nodes: int64 (m,), rising.
        weights: int64 (m,).
        pull: uint8 (m,), each node's share in the weights of its edges; None if all edges are alike.
        hubs: bool (n,), the nodes whose edges among each other are left out; None if none are.
    """

    nodes: np.ndarray
    weights: np.ndarray
    pull: np.ndarray | None
    hubs: np.ndarray | None


def weigh(degrees: np.ndarray) -> Weighed:
    """The parts of a split, and their weights. degrees: int (n,), edges of each node in both directions.

    A hub has more edges than the mean of the nodes with edges, and enough for edges of weight 0 by themselves.
    """
    degrees = np.asarray(degrees, np.int64)
    if not is_skewed(degrees):
        return Weighed(np.arange(len(degrees)), np.ones(len(degrees), np.int64), None, None)
    nodes = np.flatnonzero(degrees)
    alone = np.rint(WEIGHT * KEPT ** np.maximum(np.arange(FEW) - 1, 0)).astype(np.uint8)
    pull = alone[np.minimum(degrees, FEW - 1)]
    hubs = (pull == 0) & (degrees > degrees.sum() / len(nodes))
    return Weighed(nodes, degrees[nodes] + max(round(degrees.mean()), 1), pull[nodes], hubs)


def weigh_graph(edges: Edges, edges_out: Edges | None) -> Weighed:
    """`weigh` for a graph, in which hubs without OTHERS are hubs no more. edges, edges_out: as in `GraphData`; indices
    may be anything that slices. Memory: 40 bytes per node, and blocks of edges.
    """
    directions = [edges] if edges_out is None else [edges, edges_out]
    weighed = weigh(np.sum([np.diff(each.indptr) for each in directions], axis=0))
    hubs = weighed.hubs
    if hubs is None:
        return weighed
    others = np.zeros(len(hubs), np.int64)
    for each in directions:
        for first, last in row_blocks(each.indptr, BLOCK):
            if not hubs[first:last].any():
                continue
            ends = np.asarray(each.indptr[first : last + 1])
            plain = np.cumsum(~hubs[np.asarray(each.indices[ends[0] : ends[-1]])])
            others[first:last] += np.diff(np.concatenate([[0], plain])[ends - ends[0]])
    return replace(weighed, hubs=hubs & (others >= OTHERS))


def at_most_a_part(weights: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """The weights of nodes for a split, int64 (n,), none above the lightest part.

    A heavier node has a part for itself. With its weight METIS is left with parts to make and no nodes, and KaMinPar
    lets all parts be heavier. shares: relative weights of the parts, int (parts,).
    """
    return np.minimum(weights, max(math.ceil(fair_share(weights, shares.sum() / shares.min())), 1))


def most_edges(degrees: np.ndarray) -> float:
    """The largest share of the edges that may take part in a split, where no hub keeps its edges. degrees: as for
    `weigh`.
    """
    hubs = weigh(degrees).hubs
    return 1.0 if hubs is None else min(1.0, 2 * int(degrees[~hubs].sum()) / int(degrees.sum()))


def edge_weights(
    pull: np.ndarray, indptr: np.ndarray, blocks: Iterable[np.ndarray]
) -> Iterator[tuple[int, np.ndarray]]:
    """(number of the first edge, weights uint8) for each block of neighbours of a CSR matrix. pull: see `Weighed`."""
    start = 0
    for block in blocks:
        stop = start + len(block)
        yield start, np.maximum(pull[edge_rows(indptr, start, stop)] + pull[block], 1)
        start = stop


def clusters_of_connected(num_nodes: int, num_connected: int, num_clusters: int) -> int:
    """How many of the clusters the nodes with edges get, all where these are few. The others get clusters LARGER times
    the mean.
    """
    of_isolated = 0
    if num_clusters >= FEWEST_CLUSTERS:
        of_isolated = round(num_clusters * (num_nodes - num_connected) / num_nodes / LARGER)
    return min(num_clusters - of_isolated, num_connected)


def with_isolated(
    clusters: list[np.ndarray], nodes: np.ndarray, num_nodes: int, num_clusters: int
) -> tuple[np.ndarray, np.ndarray]:
    """(order int64 (n,) of old node ids, offsets int64 (K + 1,)) of the clusters of some nodes and of the rest.

    clusters: int64 arrays of nodes, K of them or fewer. nodes: int64 (m,), rising, all that are in them. The rest makes
    the clusters that are missing; where none is missing, it is dealt to all.
    """
    rest = np.ones(num_nodes, bool)
    rest[nodes] = False
    isolated = np.flatnonzero(rest)
    if len(clusters) < num_clusters:
        clusters = clusters + np.array_split(isolated, num_clusters - len(clusters))
    elif len(isolated):
        clusters = [np.concatenate(both) for both in zip(clusters, np.array_split(isolated, num_clusters), strict=True)]
    return np.concatenate(clusters), np.concatenate([[0], np.cumsum([len(cluster) for cluster in clusters])])
