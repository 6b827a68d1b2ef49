"""Labels and errors that spread along edges, on the streaming aggregation.

These are Correct & Smooth (Huang et al., ICLR'21) and label propagation (Zhou et al., NIPS'04). Each step is y ← α S y
+ (1 − α) y_0 with S = D_in^-½ A D_out^-½, an exact aggregation with the halo's rows under every schedule. So a rank
holds rows of its own nodes alone, a few times their number of classes.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F

from hpcgnn.app.correction import LARGEST, CorrectAndSmooth
from hpcgnn.app.edge_weights import check_roots
from hpcgnn.comm.communicator import Communicator
from hpcgnn.errors import GraphError
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.graph.local import LocalGraph
from hpcgnn.ops.operators import Linear
from hpcgnn.schedules.full_halo import FullHalo

Bound = Callable[[torch.Tensor], torch.Tensor]


class Spreading:
    """Spreads labels over one rank's share of a graph with classes. Made collectively.

    Raises:
        GraphError: on all ranks, if no training node has a label, or weights sum to less than 0.
    """

    def __init__(self, local: LocalGraph, comm: Communicator, buffers: HaloBuffers, dtype: torch.dtype) -> None:
        self._local, self._comm = local, comm
        self._known = torch.nonzero(local.mask("train")).squeeze(1)
        self._num_known = int(comm.total(torch.tensor([len(self._known)]), "evaluation"))
        if not self._num_known:
            raise GraphError.on_all(
                "no node is marked train and labelled, so that no label can spread; expected a graph with a split"
            )
        check_roots(local, comm, "labels spread")
        self._operator = FullHalo(local, comm, buffers).operator(Linear("sym", dtype))
        self._hot = F.one_hot(local.labels[self._known], local.num_classes).to(dtype)

    def labels(self, alpha: float, steps: int) -> torch.Tensor:
        """Return scores (n_p, C) in [0, 1] of owned nodes from the training nodes' labels. Collective."""
        start = torch.zeros(len(self._local.original_id), self._local.num_classes, dtype=self._hot.dtype)
        start[self._known] = self._hot
        return self._spread(start, alpha, steps, lambda y: y.clamp_(0, 1))

    def corrected(self, probabilities: torch.Tensor, options: CorrectAndSmooth) -> torch.Tensor:
        """Correct and smooth a model's probabilities. Collective.

        The model's errors on the training nodes spread and are added. Then the labels of these nodes spread with the
        scores of all others.

        Args:
            probabilities: the model's probabilities, (n_p, C).
            options: settings.

        Returns:
            scores (n_p, C) in [0, 1].
        """
        error = torch.zeros_like(probabilities)
        error[self._known] = self._hot - probabilities[self._known]
        if options.scale:
            fixed = error[self._known]
            spread = self._spread(
                error, options.correct_alpha, options.steps, lambda y: y.index_copy_(0, self._known, fixed)
            )
            scores = probabilities + options.scale * spread
        else:
            total = error.abs().sum(dtype=torch.float64).reshape(1)
            mean = float(self._comm.total(total, "evaluation")) / self._num_known
            spread = self._spread(error, options.correct_alpha, options.steps, lambda y: y.clamp_(-1, 1))
            factor = mean / spread.abs().sum(1, keepdim=True)
            scores = probabilities + torch.where(factor <= LARGEST, factor, 1.0) * spread
        scores[self._known] = self._hot
        return self._spread(scores, options.smooth_alpha, options.steps, lambda y: y.clamp_(0, 1))

    def _spread(self, start: torch.Tensor, alpha: float, steps: int, bound: Bound) -> torch.Tensor:
        y, rest = start, (1 - alpha) * start
        for _ in range(steps):
            y = bound(self._operator.multiply(y).mul_(alpha).add_(rest))
        return y


def as_logits(scores: torch.Tensor) -> torch.Tensor:
    """Rows whose softmax is the scores (n_p, C) divided by their sum, so that they serve as a model's outputs."""
    return scores.clamp_min(torch.finfo(scores.dtype).tiny).log()
