"""Labels and errors that spread along edges, on the streaming aggregation.

Each step is y ← α S y + (1 − α) y_0 with S = D_in^-½ A D_out^-½ (Zhou et al., NIPS'04), an exact aggregation with the
halo's rows under every schedule. So a rank holds rows of its own nodes alone, a few times their number of classes.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F

from hpcgnn.comm.communicator import Communicator
from hpcgnn.errors import GraphError
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.extras.recipes.hops import check_roots
from hpcgnn.graph.local import LocalGraph
from hpcgnn.ops.operators import WeightedSum
from hpcgnn.schedules.full_halo import FullHalo

Bound = Callable[[torch.Tensor], torch.Tensor]


class Spreading:
    """Spreads labels over one rank's share of a graph with classes. Made collectively.

    Attributes:
        known: int64 (m_p,), own training nodes with a label.
        num_known: how many there are on all ranks.
        hot: (m_p, C), their labels.

    Raises:
        GraphError: on all ranks, if no training node has a label, or weights sum to less than 0.
    """

    def __init__(self, local: LocalGraph, comm: Communicator, buffers: HaloBuffers, dtype: torch.dtype) -> None:
        self._num_owned, self._comm = local.num_owned, comm
        self.known = torch.nonzero(local.mask("train")).squeeze(1)
        self.num_known = int(self.total(torch.tensor([len(self.known)])))
        if not self.num_known:
            raise GraphError.on_all(
                "no node is marked train and labelled, so that no label can spread; expected a graph with a split"
            )
        check_roots(local, comm, "labels spread")
        self._operator = FullHalo(local, comm, buffers).operator(WeightedSum("sym", dtype))
        self.hot = F.one_hot(local.labels[self.known], local.num_classes).to(dtype)

    def total(self, values: torch.Tensor) -> torch.Tensor:
        """The sums over all ranks. Collective."""
        return self._comm.total(values, "evaluation")

    def labels(self, alpha: float, steps: int) -> torch.Tensor:
        """Return scores (n_p, C) in [0, 1] of owned nodes from the training nodes' labels. Collective."""
        start = torch.zeros(self._num_owned, self.hot.shape[1], dtype=self.hot.dtype)
        start[self.known] = self.hot
        return self.spread(start, alpha, steps, lambda y: y.clamp_(0, 1))

    def spread(self, start: torch.Tensor, alpha: float, steps: int, bound: Bound) -> torch.Tensor:
        """Return rows (n_p, C) after some steps from `start`. bound: called with the rows of each step. Collective."""
        y, rest = start, (1 - alpha) * start
        for _ in range(steps):
            y = bound(self._operator.multiply(y).mul_(alpha).add_(rest))
        return y


def as_logits(scores: torch.Tensor) -> torch.Tensor:
    """Rows whose softmax is the scores (n_p, C) divided by their sum, so that they serve as a model's outputs."""
    return scores.clamp_min(torch.finfo(scores.dtype).tiny).log()
