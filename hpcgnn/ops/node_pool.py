"""Some nodes of the whole graph, the same on every rank, with their rows on every rank, for pairs of nodes without an
edge.

Nodes drawn for every edge by itself would need a plan of their own in every epoch, and a row for each edge. Edges share
the nodes of a pool instead. Its rows are put together once, in a matrix whose size depends on neither the graph nor the
number of ranks. Their returns are summed once.
"""

from dataclasses import dataclass

import numpy as np
import torch

from hpcgnn import kernels
from hpcgnn.comm import Communicator


@dataclass(frozen=True)
class NodePool:
    """ids: int64 (M,), different original ids, increasing. rows, places: int64 (m,), the own nodes among them and where
    these stand in the pool.
    """

    ids: torch.Tensor
    rows: torch.Tensor
    places: torch.Tensor

    @classmethod
    def drawn(cls, key: int, count: int, own: torch.Tensor, num_nodes: int) -> "NodePool":
        """`count` different nodes of num_nodes, all where there are no more, by draws of this key. own: int64 (n_p,),
        the original ids of own nodes.
        """
        return cls.of(torch.from_numpy(draw_nodes(key, count, num_nodes)), own)

    @classmethod
    def of(cls, ids: torch.Tensor, own: torch.Tensor) -> "NodePool":
        """These nodes, int64 (M,), increasing. own: see `drawn`."""
        places = places_in(ids, own)
        rows = torch.nonzero(places >= 0).squeeze(1)
        return cls(ids, rows, places[rows])

    def gathered(self, x: torch.Tensor, comm: Communicator, kind: str) -> torch.Tensor:
        """The pool's rows (M, F) of all ranks' own rows x (n_p, F). Collective."""
        found = x.new_zeros(len(self.ids), x.shape[1])
        found[self.places] = x[self.rows]
        return comm.allreduce_(found, kind)

    def returned(self, gradient: torch.Tensor, total: torch.Tensor, comm: Communicator, kind: str) -> None:
        """The adjoint of `gathered`: add the sums over ranks of the rows `gradient` (M, F), which are overwritten, to
        the own rows total (n_p, F). Collective.
        """
        comm.allreduce_(gradient, kind)
        total[self.rows] += gradient[self.places]


def draw_nodes(key: int, count: int, num_nodes: int) -> np.ndarray:
    """int64, increasing: `count` different ones of num_nodes, all where there are no more; by draws of this key."""
    if count >= num_nodes:
        return np.arange(num_nodes, dtype=np.int64)
    found, begin = np.zeros(0, np.int64), 0
    while len(found) < count:
        words = kernels.random_words(key, torch.arange(begin, begin + count), 2).numpy()
        drawn = np.concatenate([found, (words[:, 0] << 31 | words[:, 1] >> 1) % num_nodes])
        _, firsts = np.unique(drawn, return_index=True)
        found, begin = drawn[np.sort(firsts)], begin + count
    return np.sort(found[:count])


def places_in(ids: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """int64 (m,): where each of the wanted ids (m,) stands among `ids`, which increase, -1 where it does not."""
    places = torch.searchsorted(ids, wanted).clamp_(max=len(ids) - 1)
    return torch.where(ids[places] == wanted, places, -1)
