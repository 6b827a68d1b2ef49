"""What nodes and edges count for when a graph is split, and which of them are left out: what hubs ask for.

What splits a graph balances one weight, but a rank's memory goes with its nodes and its time with its edges too. So a
node of a skewed graph weighs its degree and something more: then no cluster is large in either, and maps of clusters to
ranks can balance both.

What is to be few is not the edges between parts but the halo rows. A node of many neighbours is wanted everywhere
whatever is done, a node of few only where they are. So on skewed graphs an edge weighs what it will probably save: the
chance that none of the other neighbours of one end is in the part of the other end, and the same the other way. An edge
between two hubs saves nothing and is left out, which on a graph of heavy tails is most of them: what splits the rest
takes a small part of the time and memory. Nodes without edges can go anywhere. They are left out too, and make clusters
of their own, with which maps even out the numbers of nodes.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from hpcgnn.placement.skew import is_skewed

BRANCHES = 8
WEIGHT, KEPT, FEW = 16, 1 - 1 / BRANCHES, 256  # of an edge to a leaf; what a further neighbour leaves of it; degrees
HUB = 2  # times the mean degree; not fewer neighbours than make the weight of an edge nothing
LARGER = 2  # clusters of nodes without edges, against the mean


@dataclass(frozen=True)
class Weighed:
    """The nodes of a graph that are split. nodes: int64 (m,), rising. weights: int64 (m,). pull: uint8 (m,), what each
    adds to the weights of its edges; hubs: bool (m,), those with no edges among each other. None where all edges are
    there and alike.
    """

    nodes: np.ndarray
    weights: np.ndarray
    pull: np.ndarray | None
    hubs: np.ndarray | None


def weigh(degrees: np.ndarray) -> Weighed:
    """What takes part in a split, and its weights. degrees: int (n,), edges of each node in both directions."""
    degrees = np.asarray(degrees, np.int64)
    if not is_skewed(degrees):
        return Weighed(np.arange(len(degrees)), np.ones(len(degrees), np.int64), None, None)
    mean = degrees.sum() / len(degrees)
    nodes = np.flatnonzero(degrees)
    degrees = degrees[nodes]
    alone = np.rint(WEIGHT * KEPT ** np.maximum(np.arange(FEW) - 1, 0)).astype(np.uint8)
    pull = alone[np.minimum(degrees, FEW - 1)]
    return Weighed(nodes, degrees + max(round(mean), 1), pull, (pull == 0) & (degrees > HUB * mean))


def most_edges(degrees: np.ndarray) -> float:
    """The largest share of the edges that may take part in a split. degrees: as for `weigh`."""
    hubs = weigh(degrees).hubs
    if hubs is None:
        return 1.0
    degrees = np.asarray(degrees, np.int64)
    degrees = degrees[degrees > 0]
    return min(1.0, 2 * int(degrees[~hubs].sum()) / int(degrees.sum()))


def edge_weights(
    pull: np.ndarray, indptr: np.ndarray, blocks: Iterable[np.ndarray]
) -> Iterator[tuple[int, np.ndarray]]:
    """(number of the first edge, weights uint8) for each block of neighbours of a CSR matrix. pull: see `Weighed`."""
    start, rows = 0, len(indptr) - 1
    for block in blocks:
        stop = start + len(block)
        first, last = np.searchsorted(indptr, [start, stop], side="right") - 1
        last = min(int(last), rows - 1)
        counts = np.diff(np.clip(indptr[first : last + 2], start, stop))
        weights = np.repeat(pull[first : last + 1], counts) + pull[block]
        yield start, np.maximum(weights, 1)
        start = stop


def clusters_of_connected(num_nodes: int, num_connected: int, num_clusters: int) -> int:
    """How many of the clusters the nodes with edges get. The others get clusters LARGER times the mean."""
    of_isolated = round(num_clusters * (num_nodes - num_connected) / num_nodes / LARGER)
    return min(num_clusters - of_isolated, num_connected)


def with_isolated(
    clusters: list[np.ndarray], nodes: np.ndarray, num_nodes: int, num_clusters: int
) -> tuple[np.ndarray, np.ndarray]:
    """(order int64 (n,) of old node ids, offsets int64 (K + 1,)) of the clusters of some nodes and those of the rest.

    clusters: int64 arrays of nodes, K of them or fewer. nodes: int64 (m,), rising, all that are in them. The rest makes
    the clusters that are missing; where none is missing, it is dealt to all.
    """
    rest = np.ones(num_nodes, bool)
    rest[nodes] = False
    isolated = np.flatnonzero(rest)
    if len(clusters) < num_clusters:
        clusters = clusters + np.array_split(isolated, num_clusters - len(clusters))
    elif len(isolated):
        clusters = [np.concatenate(both) for both in zip(clusters, np.array_split(isolated, num_clusters))]
    return np.concatenate(clusters), np.concatenate([[0], np.cumsum([len(cluster) for cluster in clusters])])
