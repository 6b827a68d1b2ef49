"""Sync policies: how training proceeds, and how the ranks' parameters are kept together."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from hpcgnn.comm import Communicator
from hpcgnn.nn.graph import Graph
from hpcgnn.nn.model import Model
from hpcgnn.options import OptimConfig
from hpcgnn.schedules.base import Optimizer, Stage, Step


class AllreduceEveryStep:
    """One stage with one step per epoch. Each step sums gradients over ranks, so all ranks hold the same parameters."""

    first_whole = 0

    def __init__(self, comm: Communicator) -> None:
        self._comm = comm

    def plan(self, options: OptimConfig) -> list[OptimConfig]:
        """The whole run is one stage."""
        return [options]

    def extend(self, model: Model) -> None:
        """Nothing but the model is trained."""

    def stage(self, index: int, options: OptimConfig, model: Model, graph: Graph) -> Stage:
        """The whole model."""
        return Stage(model, options)

    def follow(self, index: int, model: Model) -> bool:
        """There is no second stage."""
        return True

    def prepare(self, graph: Graph) -> None:
        """A step takes the graph as it is."""

    def plans(self) -> Iterator[tuple[tuple[int, int], Any, Any]]:
        """No step has rows of its own."""
        yield from ()

    def steps(self, epoch: int, stage: Stage, graph: Graph, optimizers: Sequence[Optimizer]) -> Iterator[Step]:
        """One step on the whole graph."""
        yield Step(graph, self.reduce)

    def reduce(self, gradients: torch.Tensor) -> None:
        """Sum the flat gradients (one buffer, one message) over all ranks in place. Collective."""
        self._comm.allreduce_(gradients, "allreduce")

    def state(self, optimizers: Sequence[Optimizer]) -> dict[str, torch.Tensor]:
        """The ranks' state is one and the same."""
        return {}

    def restore(self, state: Mapping[str, torch.Tensor], optimizers: Sequence[Optimizer]) -> None:
        """Nothing to go on from."""
