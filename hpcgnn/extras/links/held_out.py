"""Edges that are held out: drawn ones are taken out of a rank's edges before anything is made of them.

Neither blocks nor halo plans, neither degrees nor norms know of them. So no validation or test edge can reach an
embedding. The original ids of an edge's ends, the smaller first, decide the draw of its split. So both directions of an
edge and all its copies are in one split, for every number of ranks and every map. A self loop is never held out.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch

from hpcgnn import kernels
from hpcgnn.comm.communicator import Communicator
from hpcgnn.exchange.plan import build_halo_plan, gather_halo
from hpcgnn.graph.load import TaskEdges
from hpcgnn.graph.own_rows import read_original_id
from hpcgnn.graphfile.given_links import HELD
from hpcgnn.graphfile.ranges import row_blocks
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.placement.order import FoundEdges


@dataclass(frozen=True)
class Drawn(TaskEdges):
    """key: 64 bits, of the draws; shares: of training, validation and test edges, which sum to 1."""

    key: int
    shares: tuple[float, float, float]

    def sides(self, one: np.ndarray, other: np.ndarray, num_nodes: int) -> np.ndarray:
        """uint8 (m,): 0 for training, and from 1 as in HELD, of edges between nodes of these original ids,
        int64 (m,).
        """
        # A number for each pair: 64 bits hold those of 3 billion nodes, and beyond that some pairs share a draw.
        pair = np.minimum(one, other) * np.int64(num_nodes) + np.maximum(one, other)
        words = kernels.random_words(self.key, torch.from_numpy(pair), 1)[:, 0].numpy()
        bounds = [round(share * 2**32) for share in np.cumsum(self.shares[:2])]
        sides = np.searchsorted(bounds, words, side="right").astype(np.uint8)
        sides[one == other] = 0
        return sides

    def take_out(
        self, file: GraphFile, ranges: list[tuple[int, int]], directions: list[FoundEdges], cap: int, comm: Communicator
    ) -> tuple[dict[str, FoundEdges], np.ndarray]:
        with comm.together("reading the graph"):
            ids = read_original_id(file, ranges).numpy()
        held, remaining = dict[str, FoundEdges](), np.zeros(0, bool)
        for index, edges in enumerate(directions):
            sides = self._sides_of(edges, ids, file.meta.num_nodes, cap, comm)
            if index == 0:
                remaining = sides == 0
                bare = replace(edges, weight=None, type=None)
                held = {split: bare.taken(sides == 1 + number) for number, split in enumerate(HELD)}
            directions[index] = edges.taken(sides == 0)
        return held, remaining

    def _sides_of(self, edges: FoundEdges, ids: np.ndarray, num_nodes: int, cap: int, comm: Communicator) -> np.ndarray:
        """uint8 (E_p,): the side of each edge. Collective: the owners of the other ends say their original ids."""
        away = edges.owner != comm.rank
        plan, position = build_halo_plan(edges.owner[away], edges.local_id[away], cap, len(ids), comm)
        others = gather_halo(plan, torch.from_numpy(ids), comm).numpy()
        sides, passed = np.empty(len(away), np.uint8), 0
        for first, last in row_blocks(edges.indptr):
            part = np.s_[edges.indptr[first] : edges.indptr[last]]
            there = away[part]
            other = np.empty(len(there), np.int64)
            other[~there] = ids[edges.local_id[part][~there]]
            count = int(np.count_nonzero(there))
            other[there] = others[position[passed : passed + count]]
            passed += count
            own = np.repeat(ids[first:last], np.diff(edges.indptr[first : last + 1]))
            sides[part] = self.sides(own, other, num_nodes)
        return sides
