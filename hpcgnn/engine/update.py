"""The parameters' side of a stage: gradients, their sum over ranks, clipping, the optimizers."""

import math
from collections.abc import Callable
from itertools import chain
from typing import cast

import torch

from hpcgnn.comm import Communicator
from hpcgnn.engine.gradient_sum import GradientSum, by_layer
from hpcgnn.engine.gradients import FlatGradients
from hpcgnn.engine.hooks import Plugins
from hpcgnn.engine.optim import Stack, build_optimizer, set_learning_rate
from hpcgnn.schedules.base import Stage, Step

#: Bytes from which on a part of the gradients is summed by itself.
LEAST_SUM = 1 << 20


class Update:
    """One stage's gradients and fresh optimizers. Made and used by all ranks together.

    Attributes:
        gradients: all gradients in one vector.
        optimizers: as many as the stage names.
    """

    def __init__(self, stage: Stage, comm: Communicator, plugins: Plugins) -> None:
        layers = by_layer(stage.module)
        self.gradients = FlatGradients(chain.from_iterable(layers))
        self._sum = GradientSum(self.gradients.flat, layers, comm, LEAST_SUM)
        stack = cast(Stack, stage.module)  # every stage's module has `convs`
        self.optimizers = [build_optimizer(stack, stage.options) for _ in range(stage.optimizers)]
        self._comm, self._plugins, self._clip_norm = comm, plugins, stage.options.clip_norm

    def close(self) -> None:
        """Remove the hooks from the parameters."""
        self._sum.close()

    def set_learning_rate(self, rate: float) -> None:
        """For all optimizers."""
        for optimizer in self.optimizers:
            set_learning_rate(optimizer, rate)

    def backward(self, loss: torch.Tensor, step: Step) -> None:
        """The backward pass, in which sums over ranks begin."""
        with self._sum.during(step.begin):
            loss.backward()

    def reduce(self, reduce: Callable[[torch.Tensor], None]) -> None:
        """Finish the sums over ranks, or call reduce(flat gradients) if none has begun."""
        self._sum.finish(reduce)

    def move(self, number: int) -> bool:
        """Step with optimizer `number`. False, and nothing moves, if a gradient is not finite."""
        square = self._plugins.gradient_square()
        own = 0.0 if square is None else float(self._comm.total(square))
        if not (self.gradients.finite() and math.isfinite(own)):
            return False
        factor = self.gradients.clip(self._clip_norm, own)
        self.optimizers[number].step()
        self._plugins.after_step(factor)
        return True
