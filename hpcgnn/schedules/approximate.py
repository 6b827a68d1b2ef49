"""A step may be approximate; kept values and reported numbers never are.

Narrowed, sampled or delayed rows, and dropped edges, make noise that training averages out. A published number must not
depend on it, nor on the number of ranks. The same holds for an aggregate of the features that is exchanged once and
kept. So without gradients (evaluation, kept aggregates), ranks exchange all neighbours' rows unchanged.
"""

from typing import cast

import torch

from hpcgnn.graph.local import LocalGraph
from hpcgnn.ops.operators import Made, Operator
from hpcgnn.schedules.base import HaloPolicy, PrunableHalo


class ApproximateInTraining:
    """A halo policy of two: `training` gives the operators where gradients are wanted, `exact` elsewhere. All else is a
    matter of training alone.
    """

    def __init__(self, exact: HaloPolicy, training: HaloPolicy) -> None:
        self.exact, self.training = exact, training

    def operator(self, description: Operator[Made]) -> Made:
        """See HaloPolicy."""
        return (self.training if torch.is_grad_enabled() else self.exact).operator(description)

    def begin_epoch(self, epoch: int) -> None:
        """See HaloPolicy; so are all that follow."""
        self.training.begin_epoch(epoch)

    @property
    def has_state(self) -> bool:
        return self.training.has_state

    @property
    def kept_bytes(self) -> int:
        return self.training.kept_bytes

    def state(self) -> dict[str, torch.Tensor]:
        return self.training.state()

    def load_state(self, tensors: dict[str, torch.Tensor]) -> None:
        self.training.load_state(tensors)

    def restricted(self, local: LocalGraph) -> HaloPolicy:
        return cast(PrunableHalo, self.training).restricted(local)
