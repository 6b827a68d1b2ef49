"""The edges between clusters and ranks while clusters move: counted once, then brought up to date with each move.

A pass over the clusters asks for all of them, and moves few. Counting them anew in each pass took most of its time.
"""

import numpy as np

from hpcgnn.graphfile.ranges import segments

MOST_KEPT = 1 << 25  # clusters times ranks; with more, edges are counted on request
COUNTED = 1 << 18  # clusters times ranks whose edges are counted together
EXACT = 1 << 24  # whole numbers up to this one are exact in float32

Graph = tuple[np.ndarray, np.ndarray, np.ndarray]
"""indptr int64 (K + 1,), indices int64 (nnz,), edge weights int64 (nnz,): symmetric, without a diagonal."""


class Links:
    """Edges from each cluster to each rank. Memory: O(K P) up to MOST_KEPT numbers."""

    def __init__(self, graph: Graph, parts: np.ndarray, num_ranks: int, per_node: int = 1) -> None:
        """Args:
        graph: the graph of the clusters.
        parts: int64 (K,), the rank of each cluster. Who changes it calls `update`.
        num_ranks: P.
        per_node: consecutive ranks on a node, a divisor of num_ranks.
        """
        self.indptr, self.indices, self.weights = graph
        self.parts, self.num_ranks, self.per_node = parts, num_ranks, per_node
        self.kept: np.ndarray | None = None
        if len(parts) * num_ranks <= MOST_KEPT:
            before = np.concatenate([[0], np.cumsum(self.weights)])[self.indptr]
            dtype = np.float32 if np.diff(before).max(initial=0) < EXACT else np.float64
            kept, step = np.empty((len(parts), num_ranks), dtype), max(1, COUNTED // num_ranks)
            for first in range(0, len(parts), step):
                kept[first : first + step] = self._counted(first, min(first + step, len(parts)))
            self.kept = kept

    def of(self, clusters: np.ndarray) -> np.ndarray:
        """Edges from clusters (B,) to each rank, plus those to all ranks of its node: float (B, P), a copy."""
        if self.kept is not None:
            found = self.kept[clusters]
        else:
            counts = self.indptr[clusters + 1] - self.indptr[clusters]
            found = self._count(segments(self.indptr[clusters], counts), counts)
        if self.per_node > 1:
            of_node = found.reshape(-1, self.per_node).sum(axis=1, dtype=np.float64)
            found = found + np.repeat(of_node, self.per_node).reshape(found.shape)
        return found

    def within(self) -> int:
        """Edges that do not leave a rank, and those that do not leave a node where nodes have several ranks."""
        total, step = 0.0, max(1, COUNTED // self.num_ranks)
        for first in range(0, len(self.parts), step):
            some = np.arange(first, min(first + step, len(self.parts)))
            total += float(self.of(some)[some - first, self.parts[some]].sum(dtype=np.float64))
        return round(total)

    def update(self, clusters: np.ndarray, left: np.ndarray) -> None:
        """Follow moves of different clusters (B,) away from the ranks `left` (B,); `parts` has their new ranks."""
        if self.kept is None or not len(clusters):
            return
        counts = self.indptr[clusters + 1] - self.indptr[clusters]
        edges = segments(self.indptr[clusters], counts)
        cells, weights = self.indices[edges] * self.num_ranks, self.weights[edges].astype(self.kept.dtype)
        kept = self.kept.reshape(-1)
        np.subtract.at(kept, cells + np.repeat(left, counts), weights)
        np.add.at(kept, cells + np.repeat(self.parts[clusters], counts), weights)

    def _counted(self, first: int, last: int) -> np.ndarray:
        edges = slice(int(self.indptr[first]), int(self.indptr[last]))
        return self._count(edges, np.diff(self.indptr[first : last + 1]))

    def _count(self, edges: np.ndarray | slice, counts: np.ndarray) -> np.ndarray:
        """Edges to each rank: float64 (B, P). edges: those of B clusters, one after another. counts: of each (B,)."""
        cells = np.repeat(np.arange(len(counts)) * self.num_ranks, counts) + self.parts[self.indices[edges]]
        found = np.bincount(cells, self.weights[edges], len(counts) * self.num_ranks)
        return found.astype(np.float64, copy=False).reshape(-1, self.num_ranks)
