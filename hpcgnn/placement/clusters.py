"""Which rank gets which cluster: the map that turns one clustered graph file into a partition for any number of ranks.

Clusters are many times more numerous than ranks. So a partition of the small weighted cluster graph is nearly as good
as one of the graph itself. It takes seconds, and can be made when a job starts. Several
weights may have to balance: a rank's memory grows with its nodes, its time with its edges too. METIS alone leaves them
out of balance, because the clusters are coarse weights for it. It does not know either that runs of consecutive
clusters may be a good partition already (they come from nested dissection). So both are tried as a start, for the sum
of the weights, and refined for each of them (`refinement`).

The rank that receives most rows makes all others wait. Rows are known only with a map: so the best map is refined once
more, with the edges of each cluster to other ranks as one more weight. Clusters without edges may be anywhere. They
are dealt last, and never fill a rank that could have edges.

Used by `partition_tools` and by training without a stored map, hence numpy only, and pymetis where METIS is called.
"""

import heapq
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from hpcgnn.errors import GraphError
from hpcgnn.graphfile.schema import Csr
from hpcgnn.placement.refinement import Assignment, Graph, bounds, cuts, external_edges, refined

SAVING, TOLERATED = 0.05, 1.3
EDGES_PER_NODE = 64  # edges that are gathered in the time of a node's products, in layers of common widths
HUB, SKEWED = 16, 0.2  # times the mean degree; share of the edges
WHOLE = 1 << 30  # METIS takes whole numbers: what all clusters weigh together


def map_clusters(sizes: np.ndarray, cluster_graph: Csr, num_ranks: int, seed: int = 0) -> np.ndarray:
    """Clusters to ranks with balanced weights and a small cut: int32 (K,), values 0..num_ranks-1, none of them unused.

    sizes: (K,) or (K, m) weights to balance, such as nodes and in-edges; a weight that is 0 everywhere does not count.
    cluster_graph: `hpcgnn.graphfile.storage.Csr`, symmetric, data = number of edges between two clusters (None: all 1);
    its diagonal is ignored. In each weight the heaviest rank ends within the bounds of `refinement` where the sizes of
    the clusters allow it. Of several weights the edges from other ranks, which stand for received rows, are balanced
    too. The busiest rank must win more by it than all ranks lose. Deterministic in its arguments. Not collective:
    call it on one rank and broadcast, or on all with the same arguments. Raises GraphError for more ranks than
    clusters.
    """
    shares = shares_of(sizes, num_ranks)
    if num_ranks == 1:
        return np.zeros(len(shares), np.int32)
    if num_ranks == len(shares):
        return np.arange(num_ranks, dtype=np.int32)
    whole = indptr, indices, weights = without_diagonal(cluster_graph)
    linked = (np.diff(indptr) > 0) | (shares[:, 0] == 0) | (shares[:, 1:] > 0).any(axis=1)
    linked[indices] = True  # a file may hold an edge in one direction alone
    if np.count_nonzero(linked) < num_ranks:
        linked[:] = True
    graph = indptr[np.append(linked, True)], (np.cumsum(linked) - 1)[indices], weights
    parts, sizes, rest = np.empty(len(shares), np.int64), shares[linked], np.flatnonzero(~linked)
    found = [refined(_starts(sizes, graph, num_ranks, seed), sizes, graph, num_ranks, seed)]
    if sizes.shape[1] > 1:
        received = shares_of(external_edges(found[0], graph), num_ranks)
        found.append(refined(found, np.concatenate([sizes, received], axis=1), graph, num_ranks, seed))
    parts[linked] = min(found, key=lambda each: Assignment(each, sizes, graph, num_ranks).cost())
    heaviest = rest[np.argsort(-shares[rest, 0], kind="stable")]
    _deal(parts, heaviest, shares[:, 0], np.bincount(parts[linked], sizes[:, 0], num_ranks))
    Assignment(parts, shares, whole, num_ranks).balance()
    return parts.astype(np.int32)


def _starts(shares: np.ndarray, graph: Graph, num_ranks: int, seed: int) -> list[np.ndarray]:
    """The maps to refine, int64 (K,): the one of METIS for the sum of the weights, and runs of consecutive clusters.
    Runs are good where the clusters come from nested dissection.
    """
    together = shares.sum(axis=1) / shares.sum()
    runs = np.minimum((np.cumsum(together) - together / 2) * num_ranks, num_ranks - 1).astype(np.int64)
    return [metis(*graph, num_ranks, seed, vertex_weights=np.rint(together * WHOLE)), runs]


def economical_map(
    make: Callable[[np.ndarray], np.ndarray], sizes: np.ndarray, graph: Csr, num_ranks: int
) -> np.ndarray:
    """Clusters to ranks with nodes balanced, and in-edges as well unless that costs more than it gives: int32 (K,).

    make(sizes) -> the map that balances these. sizes: int (K, 2), nodes and in-edges. graph: as for `map_clusters`.

    If one part of a graph has many edges and another few, ranks of equal nodes and edges must mix both, with far more
    halo rows. In-edges are left unequal if that saves more than SAVING of the cut edges, of all ranks and of the
    busiest one. The growth of the largest rank's work counts against the saving. No rank may have more than
    TOLERATED times the mean work. Not for graphs with hubs (`is_skewed`): every map of those has many halo rows.
    """
    even, few = make(sizes), make(sizes[:, 0])
    links = without_diagonal(graph)
    each = shares_of(sizes[:, 0] * EDGES_PER_NODE + sizes[:, 1], num_ranks)[:, 0]
    work_even, work = (imbalance(np.bincount(parts, each, num_ranks)) for parts in (even, few))
    pays = cuts(few, links, num_ranks) * (work / work_even) < (1 - SAVING) * cuts(even, links, num_ranks)
    return few if pays.all() and work <= TOLERATED else even


def shares_of(sizes: np.ndarray, num_ranks: int) -> np.ndarray:
    """Weights in shares of a rank, float64 (K, m): the columns that are not 0 everywhere.

    A cluster that is heavier than the bound of a rank weighs the bound, and the shares are those of the other ranks. So
    its rank has no room for more of this weight, and the bounds of the others hold.
    """
    sizes = np.asarray(sizes, np.float64)
    sizes = sizes.reshape(len(sizes), -1)
    _check_count(len(sizes), num_ranks)
    sizes = sizes[:, sizes.any(axis=0)] if sizes.any() else np.ones((len(sizes), 1))
    most = bounds(sizes.shape[1])
    shares = [fair_share(column, num_ranks, bound) for column, bound in zip(sizes.T, most, strict=True)]
    return np.minimum(sizes / shares, most)


def fair_share(sizes: np.ndarray, num_parts: float, most: float = 1.0) -> float:
    """The mean weight of a part that has none of the sizes above `most` such means: each of those has a part for
    itself.
    """
    share = float(sizes.sum(dtype=np.float64)) / num_parts
    while True:
        heavy = sizes > most * share
        mean = float(sizes[~heavy].sum(dtype=np.float64)) / (num_parts - np.count_nonzero(heavy))
        if not 0 < mean < share:
            return share
        share = mean


def deal_clusters(sizes: np.ndarray, num_ranks: int, seed: int = 0) -> np.ndarray:
    """Clusters dealt to ranks at random, each to the lightest rank so far: int32 (K,), no rank unused.

    The random assignment of RandomTMA (Zhu et al., 2023), and the worst reasonable map to test with. sizes as above.
    """
    sizes = np.asarray(sizes, np.int64)
    _check_count(len(sizes), num_ranks)
    sizes = sizes if sizes.any() else np.ones_like(sizes)
    parts = np.empty(len(sizes), np.int32)
    order = np.random.Generator(np.random.PCG64(seed)).permutation(len(sizes))
    _deal(parts, order, sizes, np.zeros(num_ranks, np.int64))
    return parts


def _deal(parts: np.ndarray, clusters: np.ndarray, sizes: np.ndarray, loads: np.ndarray) -> None:
    """Deal clusters in their order, each to the lightest rank so far. sizes: (K,); loads: (P,), of what ranks have."""
    lightest = [(load, 0, rank) for rank, load in enumerate(loads.tolist())]
    heapq.heapify(lightest)
    for cluster, size in zip(clusters.tolist(), sizes[clusters].tolist(), strict=True):
        load, dealt, parts[cluster] = lightest[0]
        heapq.heapreplace(lightest, (load + size, dealt + 1, lightest[0][2]))


def imbalance(loads: np.ndarray | Sequence[float]) -> float:
    """Heaviest over mean, 1.0 for perfect balance (and where there is nothing to balance)."""
    loads = np.asarray(loads, np.float64)
    return float(loads.max() / loads.mean()) if loads.sum() > 0 else 1.0


def metis(
    indptr: np.ndarray,
    indices: np.ndarray,
    edge_weights: np.ndarray | None,
    num_parts: int,
    seed: int = 0,
    vertex_weights: np.ndarray | None = None,
    shares: np.ndarray | None = None,
) -> np.ndarray:
    """METIS's multilevel k-way partition (Karypis and Kumar, 1998) of a symmetric graph without self loops: int64 (n,).

    indptr, indices: CSR. edge_weights: positive int (nnz,) or None; vertex_weights: int (n,) or None. shares: relative
    sizes of the parts (num_parts,), None for equal ones. Raises GraphError where pymetis is not installed.
    """
    try:
        import pymetis
    except ImportError as error:
        raise GraphError("partitioning needs pymetis: pip install pymetis") from error
    indptr, indices = np.ascontiguousarray(indptr, np.int64), np.ascontiguousarray(indices, np.int64)
    graph = pymetis.CSRAdjacency(indptr, indices)
    weights: dict[str, Any] = {
        name: None if values is None else np.ascontiguousarray(values, np.int64)
        for name, values in (("vweights", vertex_weights), ("eweights", edge_weights))
    }
    if shares is not None:
        weights["tpwgts"] = (np.asarray(shares, np.float64) / np.sum(shares)).tolist()
    _, parts = pymetis.part_graph(
        num_parts, graph, **weights, recursive=num_parts <= 8, options=pymetis.Options(seed=seed)
    )
    return np.array(parts, np.int64)


def _check_count(clusters: int, num_ranks: int) -> None:
    if num_ranks < 1:
        raise GraphError(f"the number of ranks must be at least 1, got {num_ranks}")
    if num_ranks > clusters:
        raise GraphError(
            f"{num_ranks} ranks are more than the {clusters} clusters of the graph; partition it again "
            f"into more clusters (`python -m partition_tools partition add ... --clusters {64 * num_ranks} -o "
            f"NEW`) or use fewer ranks"
        )


def without_diagonal(graph: Csr) -> Graph:
    """The `Graph` of a symmetric `Csr`."""
    row = np.repeat(np.arange(len(graph.indptr) - 1), np.diff(graph.indptr))
    weights = np.ones(len(row), np.int64) if graph.data is None else np.asarray(graph.data, np.int64)
    keep = (np.asarray(graph.indices) != row) & (weights > 0)
    if keep.all():
        return np.asarray(graph.indptr, np.int64), np.asarray(graph.indices, np.int64), weights
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row[keep], minlength=len(graph.indptr) - 1))]).astype(np.int64)
    return indptr, np.asarray(graph.indices)[keep].astype(np.int64), weights[keep]


def is_skewed(degrees: np.ndarray) -> bool:
    """Whether a large part of the edges is at hubs, nodes of many times the mean degree. degrees: int (n,).

    On such a graph nodes alone say little of the time that a rank takes, and few parts have few edges between them.
    """
    return skew(degrees) > SKEWED


def skew(degrees: np.ndarray) -> float:
    """The share of the edges that end at nodes with more than HUB times the mean degree. degrees: int (n,)."""
    return skew_of_parts([degrees], len(degrees), int(degrees.sum(dtype=np.int64)))


def skew_of_parts(parts: Iterable[np.ndarray], num_nodes: int, num_edges: int) -> float:
    """`skew` of degrees that come some at a time. num_nodes, num_edges: of all parts together."""
    if not num_edges:
        return 0.0
    most = HUB * num_edges / num_nodes
    return sum(int(degrees[degrees > most].sum(dtype=np.int64)) for degrees in parts) / num_edges
