"""Maps for nodes of several ranks: clusters to nodes first, then the clusters of each node to its ranks.

Consecutive ranks are on a node. The first map has few edges between nodes, the slow links. It may use a part of the
allowed imbalance only, because the ranks of a full node need room to differ. A last refinement treats both levels
together, and an edge between nodes counts for two. The flat map takes part too, so no nested map is worse.
"""

from collections.abc import Callable

import numpy as np

from hpcgnn.graphfile.ranges import segments
from hpcgnn.graphfile.schema import Csr
from hpcgnn.placement.clusters import map_clusters, shares_of, starts, without_diagonal
from hpcgnn.placement.refinement import Assignment, Graph, refined

NODES_ALLOWANCE = 0.8  # part of a rank's allowed imbalance that a node may have


def nested_map(
    sizes: np.ndarray,
    cluster_graph: Csr,
    num_ranks: int,
    per_node: int,
    seed: int = 0,
    rows: Callable[[np.ndarray], int] | None = None,
) -> np.ndarray:
    """Map clusters to ranks so that ranks and nodes are in balance and few edges are between nodes.

    Args:
        sizes: (K,) or (K, m) weights to balance, as for `map_clusters`.
        cluster_graph: the symmetric graph of the clusters, as for `map_clusters`.
        num_ranks: P.
        per_node: consecutive ranks on a node, which divide P. With P or more all ranks are on one node.
        seed: of METIS and of the order of moves.
        rows: counts the rows between nodes of a map, int64 (K,), for the choice among maps in balance. None: the map
            with fewest edges is chosen.

    Returns:
        int32 (K,), values 0..P-1, none of them unused. The node of a rank is `rank // per_node`.
    """
    shares = shares_of(sizes, num_ranks)
    if per_node == 1 or per_node >= num_ranks or num_ranks == len(shares):
        return map_clusters(sizes, cluster_graph, num_ranks, seed)
    graph, num_nodes = without_diagonal(cluster_graph), num_ranks // per_node
    of_node = refined(
        starts(shares, graph, num_nodes, seed), shares / per_node, graph, num_nodes, seed, allowance=NODES_ALLOWANCE
    )
    parts = of_node * per_node
    for node in range(num_nodes):
        clusters = np.flatnonzero(of_node == node)
        parts[clusters] += _within(clusters, shares, graph, per_node, seed)
    flat = map_clusters(sizes, cluster_graph, num_ranks, seed).astype(np.int64)
    found = [refined([start], shares, graph, num_ranks, seed, per_node, balanced=True) for start in (parts, flat)]

    def cost(each: np.ndarray) -> tuple[float, int]:
        excess, edges = Assignment(each, shares, graph, num_ranks, per_node).cost()
        return excess, edges if rows is None else rows(each)

    return min([*found, flat], key=cost).astype(np.int32)


def _within(clusters: np.ndarray, shares: np.ndarray, graph: Graph, per_node: int, seed: int) -> np.ndarray:
    """The place on their node of clusters (C,): int64 (C,)."""
    if len(clusters) <= per_node:
        return np.arange(len(clusters))
    part = _induced(graph, clusters)
    return refined(starts(shares[clusters], part, per_node, seed), shares[clusters], part, per_node, seed)


def _induced(graph: Graph, clusters: np.ndarray) -> Graph:
    """The graph of ascending clusters (C,) and the edges between them."""
    indptr, indices, weights = graph
    place = np.full(len(indptr) - 1, -1)
    place[clusters] = np.arange(len(clusters))
    counts = indptr[clusters + 1] - indptr[clusters]
    edges = segments(indptr[clusters], counts)
    row, column = np.repeat(np.arange(len(clusters)), counts), place[indices[edges]]
    inside = column >= 0
    pointers = np.concatenate([[0], np.cumsum(np.bincount(row[inside], minlength=len(clusters)))])
    return pointers, column[inside], weights[edges][inside]
