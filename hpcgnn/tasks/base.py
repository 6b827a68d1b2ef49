"""What training asks of a task, so that it never asks which task it is.

A task sees rows of outputs of a model and of labels, both of one rank. Sums over ranks are made by `total`, so that
every number is that of the whole graph.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from hpcgnn.comm.communicator import Communicator
from hpcgnn.memory.arena import Arena
from hpcgnn.traits import TaskTraits

# (outputs (n_p, C), labels, mask bool (n_p,), comm) -> the value over the nodes of the mask on all ranks; NaN where it
# is not defined. Collective.
Score = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, Communicator], float]


@dataclass(frozen=True)
class Metric:
    """score: see Score. undefined: why there can be no value though there are nodes, in words. lower: whether lower is
    better.
    """

    score: Score
    undefined: str
    lower: bool = False

    def better(self, value: float, than: float) -> bool:
        """Whether a value is better than another one."""
        return value < than if self.lower else value > than

    @property
    def direction(self) -> str:
        """Which values are better, in a word."""
        return "lower" if self.lower else "higher"


class Task(Protocol):
    """metrics: by name; the first is what `--metric auto` takes. losses: names, likewise. said: what is learned, in
    words; outputs: what a model has one output for each of; judged: what metrics are means over. probabilities: (n, C)
    of a model's outputs (n, C); None where they have none. rows: the name of the rows of `predict` in files.
    traits: what the task needs.
    """

    name: str
    said: str
    outputs: str
    metrics: dict[str, Metric]
    losses: tuple[str, ...]
    probabilities: Callable[[torch.Tensor], torch.Tensor] | None
    judged: str = "nodes"
    rows: str = "prediction"
    traits: TaskTraits = TaskTraits()

    def predict(self, outputs: torch.Tensor) -> torch.Tensor:
        """(n_p, K): what a file of predictions says of each node: integers, or floating-point for real numbers."""

    def columns(self, outputs: int) -> Sequence[str]:
        """Names of the K columns of `predict`, for so many outputs of the model."""

    def blank(self, nodes: int, outputs: int) -> torch.Tensor:
        """Labels of so many nodes, of no meaning, as a rank has them."""


class LabelTask(Task, Protocol):
    """A task that is learned from labels of nodes."""

    def weight(self, labels: torch.Tensor) -> float:
        """What the sum of the losses of these nodes' labels is divided by, summed over ranks, to be a mean."""

    def targets(self, labels: torch.Tensor, scale: "Scale | None") -> torch.Tensor:
        """What the loss compares outputs with, of the labels of the training nodes."""

    def loss(
        self, outputs: torch.Tensor, rows: torch.Tensor | None, targets: torch.Tensor, name: str, arena: Arena
    ) -> torch.Tensor:
        """The sum over rows of the loss `name`: a scalar, differentiable in outputs (n, C). rows: int64 (m,), None for
        all; targets: of these rows.
        """


# The name of a Scale among the modules of a model.
TARGETS = "targets"


class Scale(torch.nn.Module):
    """The mean and the deviation of the training nodes' targets, by which models learn and predict standardised ones.

    Buffers of the model, so that a checkpoint brings them along. mean, deviation: float64 (T,).
    """

    PARTS = ("mean", "deviation")
    mean: torch.Tensor
    deviation: torch.Tensor

    def __init__(self, mean: torch.Tensor, deviation: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("deviation", deviation)

    @classmethod
    def blank(cls, targets: int) -> "Scale":
        """That of targets which stay as they are, until a state is loaded."""
        return cls(torch.zeros(targets, dtype=torch.float64), torch.ones(targets, dtype=torch.float64))

    def standardise(self, targets: torch.Tensor) -> torch.Tensor:
        """float64 (n, T) of targets in the user's units."""
        return (targets.double() - self.mean) / self.deviation

    def in_units(self, outputs: torch.Tensor) -> torch.Tensor:
        """float64 (n, T) in the user's units, of outputs of a model."""
        return outputs.double() * self.deviation + self.mean
