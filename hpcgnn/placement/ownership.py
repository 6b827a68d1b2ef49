"""Which rank owns which node, from the cluster -> rank map alone: K numbers, the same on every rank, no directory.

Nodes are numbered by their row in the file. A rank owns the nodes of its clusters. The numbers here keep the order of
the file, and by them ranks ask each other for rows; each has an order of its own for the same nodes besides (order.py).
"""

import numpy as np

from hpcgnn.errors import GraphError

#: Local ids are int32, and places of edges as long as they fit.
MOST_INT32 = 2**31 - 1


class Ownership:
    """cluster_offsets: int64 (K + 1,), first node of each cluster; cluster_to_rank: int32 (K,); num_ranks: P.

    Raises GraphError for more nodes than a rank can number.
    Attributes: counts, int64 (P,): owned nodes of each rank; ranges(rank): its slabs of the file.
    """

    def __init__(self, cluster_offsets: np.ndarray, cluster_to_rank: np.ndarray, num_ranks: int) -> None:
        sizes = np.diff(cluster_offsets)
        self.cluster_offsets, self.cluster_to_rank, self.num_ranks = cluster_offsets, cluster_to_rank, num_ranks
        self.counts = np.bincount(cluster_to_rank, sizes, minlength=num_ranks).astype(np.int64)
        if self.counts.max() > MOST_INT32:
            raise GraphError(
                f"rank {int(self.counts.argmax())} would own {int(self.counts.max()):,} nodes, expected at most "
                f"{MOST_INT32:,}; start more ranks"
            )
        # The local id of a cluster's first node: the sizes of the clusters of the same rank that come before it.
        order = np.argsort(cluster_to_rank, kind="stable")
        before = np.cumsum(sizes[order]) - sizes[order]
        rank_start = np.concatenate([[0], np.cumsum(self.counts)])[cluster_to_rank[order]]
        self._shift = np.empty(len(sizes), np.int64)  # local id = node - shift of its cluster
        self._shift[order] = cluster_offsets[:-1][order] - (before - rank_start)

    def ranges(self, rank: int) -> list[tuple[int, int]]:
        """The rank's slabs as a list of (start, stop) in file order, adjoining clusters joined."""
        mine = np.flatnonzero((self.cluster_to_rank == rank) & (np.diff(self.cluster_offsets) > 0))
        if len(mine) == 0:
            return []
        starts, stops = self.cluster_offsets[mine], self.cluster_offsets[mine + 1]
        new = np.flatnonzero(np.concatenate([[True], starts[1:] != stops[:-1]]))
        return list(zip(starts[new].tolist(), stops[np.concatenate([new[1:] - 1, [len(mine) - 1]])].tolist()))

    def locate(self, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(owner int32, local id there int32, in the order of the file) of nodes given by their row in the file, int
        (m,).
        """
        cluster = np.searchsorted(self.cluster_offsets, nodes, side="right") - 1
        return self.cluster_to_rank[cluster], (nodes - self._shift[cluster]).astype(np.int32)
