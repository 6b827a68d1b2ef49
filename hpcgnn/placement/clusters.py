"""Which rank gets which cluster: the map that turns one clustered graph file into a partition for any number of ranks.

Clusters are many times more numerous than ranks, so a partition of the small weighted cluster graph is nearly as good
as one of the graph itself, takes milliseconds, and can be made when a job starts. METIS alone leaves it out of balance,
because the clusters are coarse weights for it, and it does not know that runs of consecutive clusters may be a good
partition already (they come from nested dissection). So both are tried as a start, each refined in the manner of
Fiduccia and Mattheyses (DAC 1982): clusters move off the heavy ranks first, and then to where they have most edges,
inside the balance reached.

Used by `partition_tools` and by training with --auto-partition, hence numpy only, and pymetis where METIS is called.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from hpcgnn.errors import GraphError
from hpcgnn.graphfile.schema import Csr

MAX_IMBALANCE = 1.03
PASSES = 10


def map_clusters(sizes: np.ndarray, cluster_graph: Csr, num_ranks: int, seed: int = 0) -> np.ndarray:
    """Clusters to ranks with balanced weights and a small cut: int32 (K,), values 0..num_ranks-1, none of them unused.

    sizes: (K,) weights to balance (nodes, edges, training nodes). cluster_graph: `hpcgnn.graphfile.storage.Csr`,
    symmetric, data = number of edges between two clusters (None: all 1); its diagonal is ignored. The heaviest rank
    ends within MAX_IMBALANCE of the mean where the sizes of the clusters allow it. Deterministic in its arguments. Not
    collective: call it on one rank and broadcast, or on all with the same arguments. Raises GraphError for more ranks
    than clusters.
    """
    sizes = _checked_sizes(sizes, num_ranks)
    if num_ranks == 1:
        return np.zeros(len(sizes), np.int32)
    if num_ranks == len(sizes):
        return np.arange(num_ranks, dtype=np.int32)
    graph = _without_diagonal(cluster_graph)
    best: _Assignment | None = None
    for start in (metis(*graph, num_ranks, seed, vertex_weights=sizes), _runs(sizes, num_ranks)):
        state = _Assignment(start, sizes, graph, num_ranks)
        state.fill_empty_ranks()
        state.balance()
        state.reduce_cut(np.random.Generator(np.random.PCG64(seed)))
        if best is None or state.cost() < best.cost():
            best = state
    assert best is not None
    return best.parts.astype(np.int32)


def _runs(sizes: np.ndarray, num_ranks: int) -> np.ndarray:
    """Consecutive clusters to each rank, by weight: int64 (K,). Good where the clusters come from nested dissection."""
    middle = np.cumsum(sizes) - sizes / 2
    return np.minimum(middle * num_ranks / sizes.sum(), num_ranks - 1).astype(np.int64)


def deal_clusters(sizes: np.ndarray, num_ranks: int, seed: int = 0) -> np.ndarray:
    """Clusters dealt to ranks at random, each to the lightest rank so far: int32 (K,), no rank unused.

    The random assignment of RandomTMA (Zhu et al., 2023), and the worst reasonable map to test with. sizes as above.
    """
    sizes = _checked_sizes(sizes, num_ranks)
    random = np.random.Generator(np.random.PCG64(seed))
    order, parts, loads = random.permutation(len(sizes)), np.empty(len(sizes), np.int32), np.zeros(num_ranks)
    dealt = np.zeros(num_ranks, np.int64)
    for cluster in order:
        rank = np.lexsort((dealt, loads))[0]
        parts[cluster] = rank
        loads[rank] += sizes[cluster]
        dealt[rank] += 1
    return parts


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
    if hasattr(pymetis, "CSRAdjacency"):
        graph: dict[str, Any] = {"adjacency": pymetis.CSRAdjacency(indptr, indices)}
    else:
        graph = {"xadj": indptr, "adjncy": indices}
    weights: dict[str, Any] = {
        name: None if values is None else np.ascontiguousarray(values, np.int64)
        for name, values in (("vweights", vertex_weights), ("eweights", edge_weights))
    }
    if shares is not None:
        weights["tpwgts"] = (np.asarray(shares, np.float64) / np.sum(shares)).tolist()
    _, parts = pymetis.part_graph(
        num_parts, **graph, **weights, recursive=num_parts <= 8, options=pymetis.Options(seed=seed)
    )
    return np.array(parts, np.int64)


def _checked_sizes(sizes: np.ndarray, num_ranks: int) -> np.ndarray:
    sizes = np.asarray(sizes, np.int64)
    if num_ranks < 1:
        raise GraphError(f"the number of ranks must be at least 1, got {num_ranks}")
    if num_ranks > len(sizes):
        raise GraphError(
            f"{num_ranks} ranks are more than the {len(sizes)} clusters of the graph; partition it again "
            f"into more clusters (`python -m partition_tools partition ... --clusters {64 * num_ranks} -o "
            f"NEW`) or use fewer ranks"
        )
    return sizes if sizes.any() else np.ones_like(sizes)


def _without_diagonal(graph: Csr) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    row = np.repeat(np.arange(len(graph.indptr) - 1), np.diff(graph.indptr))
    weights = np.ones(len(row), np.int64) if graph.data is None else np.asarray(graph.data, np.int64)
    keep = (np.asarray(graph.indices) != row) & (weights > 0)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row[keep], minlength=len(graph.indptr) - 1))]).astype(np.int64)
    return indptr, np.asarray(graph.indices)[keep].astype(np.int64), weights[keep]


class _Assignment:
    """A map under refinement. Connections are computed when asked for, so memory stays O(K + edges of the cluster
    graph)."""

    def __init__(
        self, parts: np.ndarray, sizes: np.ndarray, graph: tuple[np.ndarray, np.ndarray, np.ndarray], num_ranks: int
    ) -> None:
        self.parts, self.sizes, self.num_ranks = parts, sizes, num_ranks
        self.indptr, self.indices, self.weights = graph
        self.loads = np.bincount(parts, sizes, num_ranks)
        self.members = np.bincount(parts, minlength=num_ranks)
        self.limit = max(MAX_IMBALANCE * sizes.sum() / num_ranks, sizes.max())

    def cost(self) -> tuple[float, int]:
        """What makes one map better than another: balance up to the limit, then the cut."""
        row = np.repeat(np.arange(len(self.parts)), np.diff(self.indptr))
        cut = self.weights[self.parts[row] != self.parts[self.indices]].sum()
        return max(self.loads.max(), self.limit), cut

    def connections(self, cluster: int | np.integer) -> np.ndarray:
        """Edges from a cluster to each rank, float64 (P,)."""
        edges = slice(self.indptr[cluster], self.indptr[cluster + 1])
        return np.bincount(self.parts[self.indices[edges]], self.weights[edges], self.num_ranks)

    def move(self, cluster: int | np.integer, rank: int | np.integer) -> None:
        old = self.parts[cluster]
        self.loads[old] -= self.sizes[cluster]
        self.loads[rank] += self.sizes[cluster]
        self.members[old] -= 1
        self.members[rank] += 1
        self.parts[cluster] = rank

    def fill_empty_ranks(self) -> None:
        """Give each rank without a cluster the lightest one of the rank with the most clusters."""
        for rank in np.flatnonzero(self.members == 0):
            clusters = np.flatnonzero(self.parts == np.argmax(self.members))
            self.move(clusters[np.argmin(self.sizes[clusters])], rank)

    def balance(self) -> None:
        """Move, or else swap, clusters of the heaviest rank until it is within the limit or cannot be made lighter.

        Each step lowers the load of the heaviest rank without making another one as heavy, so it ends.
        """
        for _ in range(4 * len(self.sizes)):
            heavy = int(np.argmax(self.loads))
            if self.loads[heavy] <= self.limit or not (self._move_from(heavy) or self._swap_from(heavy)):
                break

    def _move_from(self, heavy: int) -> bool:
        clusters = np.flatnonzero((self.parts == heavy) & (self.sizes > 0))
        if len(clusters) < 2:
            return False
        after = self.loads[None, :] + self.sizes[clusters, None]
        fits = after <= self.limit
        fits[:, heavy] = False
        if not fits.any():
            fits = after < self.loads[heavy]
            fits[:, heavy] = False
            if not fits.any():
                return False
            fits &= after <= after[fits].min()
        gains = np.stack([self.connections(cluster) for cluster in clusters])
        gains -= gains[:, [heavy]]
        gains = np.where(fits, gains / np.maximum(self.sizes[clusters, None], 1), -np.inf)
        best = int(np.argmax(gains))
        self.move(clusters[best // self.num_ranks], best % self.num_ranks)
        return True

    def _swap_from(self, heavy: int) -> bool:
        """Exchange two clusters so that the heavier of the two ranks becomes as light as it can."""
        mine, others = np.flatnonzero(self.parts == heavy), np.flatnonzero(self.parts != heavy)
        surplus = self.sizes[mine, None] - self.sizes[None, others]
        worse = np.maximum(self.loads[heavy] - surplus, self.loads[self.parts[others]][None, :] + surplus)
        best = int(np.argmin(worse))
        if worse.flat[best] >= self.loads[heavy]:
            return False
        one, other = mine[best // len(others)], others[best % len(others)]
        rank = self.parts[other]
        self.move(one, rank)
        self.move(other, heavy)
        return True

    def reduce_cut(self, random: np.random.Generator) -> None:
        """Passes over the clusters in random order; each goes to the rank it has most edges with, where balance
        allows."""
        limit = max(self.limit, self.loads.max())
        for _ in range(PASSES):
            moved = 0
            for cluster in random.permutation(len(self.sizes)):
                home, size = self.parts[cluster], self.sizes[cluster]
                if self.members[home] == 1:
                    continue
                links = self.connections(cluster)
                links[(self.loads + size > limit) & (np.arange(self.num_ranks) != home)] = -1
                best = int(np.argmax(links))
                if links[best] > links[home]:
                    self.move(cluster, best)
                    moved += 1
            if not moved:
                break
