"""Which rank owns which node, from the cluster -> rank map alone: K numbers, the same on every rank, no directory.

Nodes are numbered by their row in the file. A rank owns the nodes of its clusters. The numbers here keep the order of
the file, and ranks use them in requests for rows. Each rank has a further order of its own for the same nodes
(order.py).
"""

import numpy as np

from hpcgnn.errors import GraphError

#: Local ids are int32, and places of edges as long as they fit.
MOST_INT32 = 2**31 - 1
# Nodes that are located at a time.
_BLOCK = 1 << 16


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
        # Where clusters are found: the cluster of the first node of each of many equal stretches of nodes.
        total = int(cluster_offsets[-1])
        self._bits = max(0, (total // (4 * len(sizes))).bit_length() - 1)
        self._stretches = np.searchsorted(cluster_offsets, np.arange(0, total, 1 << self._bits), side="right") - 1

    def ranges(self, rank: int) -> list[tuple[int, int]]:
        """The rank's slabs as a list of (start, stop) in file order, adjoining clusters joined."""
        mine = np.flatnonzero((self.cluster_to_rank == rank) & (np.diff(self.cluster_offsets) > 0))
        if len(mine) == 0:
            return []
        starts, stops = self.cluster_offsets[mine], self.cluster_offsets[mine + 1]
        new = np.flatnonzero(np.concatenate([[True], starts[1:] != stops[:-1]]))
        return list(
            zip(starts[new].tolist(), stops[np.concatenate([new[1:] - 1, [len(mine) - 1]])].tolist(), strict=False)
        )

    def locate(self, nodes: np.ndarray, out: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """(owners, local ids there int32, in the order of the file) of nodes given by their row in the file, int (m,).

        Owners are unsigned, of as few bytes as ranks need.

        out: int32 (m,) for the local ids, which may be the nodes themselves.
        """
        owner = np.empty(len(nodes), np.min_scalar_type(self.num_ranks - 1))
        local_id = np.empty(len(nodes), np.int32) if out is None else out
        for first in range(0, len(nodes), _BLOCK):
            part = np.s_[first : first + _BLOCK]
            cluster = self._stretches[nodes[part] >> self._bits]
            later = np.flatnonzero(self.cluster_offsets[cluster + 1] <= nodes[part])
            cluster[later] = np.searchsorted(self.cluster_offsets, nodes[part][later], side="right") - 1
            owner[part] = self.cluster_to_rank[cluster]
            local_id[part] = nodes[part] - self._shift[cluster]
        return owner, local_id
