"""The common part of both schedules of several steps: the order of the steps, and their gradients."""

import torch

from hpcgnn import kernels
from hpcgnn.comm.communicator import Communicator
from hpcgnn.nn.model import Model
from hpcgnn.ops.draws import Purpose, Randomness
from hpcgnn.schedules.base import AllreduceEveryStep


class StepsInTurn(AllreduceEveryStep):
    """One stage with several steps in every epoch, in an order that is drawn anew.

    random: Randomness, for the order. count: the number of steps, known when they are made.
    """

    count = 0

    def __init__(self, comm: Communicator, random: Randomness) -> None:
        super().__init__(comm)
        self._random = random

    def extend(self, model: Model) -> None:
        """Nothing is added; the model is noted."""
        self._model = model

    def in_turn(self) -> list[int]:
        """The numbers of this epoch's steps."""
        key = self._random.key(Purpose.SHARE_ORDER, 0)
        numbers: list[int] = torch.argsort(kernels.random_words(key, torch.arange(self.count), 1)[:, 0]).tolist()
        return numbers

    def as_whole(self, gradients: torch.Tensor) -> None:
        """Sum the gradients of a step's part of the loss, as if it were the whole one. Collective."""
        self.reduce(gradients)
        gradients.mul_(self.count)
