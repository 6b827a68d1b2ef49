"""The common part of both schedules of several steps: the order of the steps, and their gradients."""

from collections.abc import Iterator
from typing import Any

import torch

from hpcgnn import kernels
from hpcgnn.comm import Communicator
from hpcgnn.nn.model import Model
from hpcgnn.ops.draws import Purpose, Randomness
from hpcgnn.schedules.sync import AllreduceEveryStep


class StepsInTurn(AllreduceEveryStep):
    """One stage with several steps in every epoch, in an order that is drawn anew.

    comm, dtype: see AllreduceEveryStep; random: Randomness, for the order. count: the number of
    steps, known when they are made.
    """

    count = 0

    def __init__(self, comm: Communicator, random: Randomness) -> None:
        super().__init__(comm)
        self._random = random
        self._plans: list[tuple[tuple[int, int], Any, Any]] = []

    def extend(self, model: Model) -> None:
        """Nothing is added; the model is noted."""
        self._model = model

    def plans(self) -> Iterator[tuple[tuple[int, int], Any, Any]]:
        """The plans of the rows that a step depends on."""
        yield from self._plans

    def in_turn(self) -> list[int]:
        """The numbers of this epoch's steps."""
        key = self._random.key(Purpose.SHARE_ORDER, 0)
        numbers: list[int] = torch.argsort(kernels.random_words(key, torch.arange(self.count), 1)[:, 0]).tolist()
        return numbers

    def as_whole(self, gradients: torch.Tensor) -> None:
        """Sum the gradients of a step's part of the loss, as if it were the whole one. Collective."""
        self.reduce(gradients)
        gradients.mul_(self.count)
