"""The graph as layers see it: features, an `aggregate` to call, dropout, sums over all nodes. No schedule, no MPI.

A schedule makes this object; what `aggregate` does (stream, sample, reuse what is frozen) is the schedule's business.
"""

from dataclasses import dataclass

import torch

from hpcgnn.graph.local import SparseRows
from hpcgnn.ops.dropout import dropout
from hpcgnn.ops.randomness import Purpose
from hpcgnn.ops.sparse import sparse_product


@dataclass(frozen=True)
class DroppedRows:
    """Sparse features with a dropout mask that is drawn when they are multiplied: dropout_p(X) for one step."""

    features: SparseRows
    ids: torch.Tensor
    key: int
    p: float

    def __matmul__(self, weight):
        return sparse_product(self.features, weight, self.ids, self.key, self.p)


class Graph:
    """A rank's view. features: (n_p, F) tensor or SparseRows; num_nodes: over all ranks; ids: int64 (n_p,) original
    ids.

    aggregate(x, norm): own rows (n_p, F) -> (n_p, F), differentiable, collective; norm is 'sum', 'mean' or 'sym'.
    attend(projected, shape, layer, p): additive attention, differentiable, collective (see ops/attention.py).
    total(tensor): the float64 sum over ranks, collective.
    """

    def __init__(self, local, halo, total, random, constant):
        self.features, self.ids, self.num_nodes = local.features, local.original_id, local.num_nodes
        self.aggregate, self._halo, self.total, self._random = halo.aggregate, halo, total, random
        self.constant = constant

    def attend(self, projected, shape, layer, p):
        """Additive attention with dropout of the coefficients keyed by epoch, layer and edge. See ops/attention.py."""
        return self._halo.attend(projected, shape, self._random.key(Purpose.DROPOUT_ATTENTION, layer), p)

    def dropout(self, x, p, layer, purpose=Purpose.DROPOUT):
        """Dropout with draws keyed by epoch, layer, original node id and column. x: (n_p, F) tensor or SparseRows."""
        key = self._random.key(purpose, layer)
        if isinstance(x, SparseRows):
            return DroppedRows(x, self.ids, key, p)
        return dropout(x, self.ids, key, p)
