"""The interface between training and a task, so that training never checks which task it runs.

A task gets rows of a model's outputs and of labels, both of one rank. `total` sums over ranks, so that every number
covers the whole graph.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch

from hpcgnn.comm.communicator import Communicator
from hpcgnn.errors import ConfigError
from hpcgnn.memory.arena import Arena
from hpcgnn.options import TaskConfig
from hpcgnn.traits import TaskTraits

# (outputs (n_p, C), labels, mask bool (n_p,), comm) -> the value over the nodes of the mask on all ranks; NaN where it
# is not defined. Collective.
Score = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, Communicator], float]


@dataclass(frozen=True)
class Metric:
    """score: see Score. undefined: why there can be no value though there are nodes, in words. lower: whether lower is
    better. outputs: the number of a model's outputs that it needs, 0 for any.
    """

    score: Score
    undefined: str
    lower: bool = False
    outputs: int = 0

    def better(self, value: float, than: float) -> bool:
        """Whether a value is better than another one."""
        return value < than if self.lower else value > than

    @property
    def direction(self) -> str:
        """Which values are better, in a word."""
        return "lower" if self.lower else "higher"


class Task(Protocol):
    """The methods and attributes of a task.

    Attributes:
        metrics: names of the metrics; `--metric auto` takes the first.
        losses: names of the losses, likewise.
        said: the task in words.
        outputs: name of the objects with one model output each.
        judged: name of the objects that metrics average over.
        probabilities: probabilities (n, C) from outputs (n, C); None if there are none.
        rows: name of the rows of `predict` in files.
        traits: the needs of the task.
        labels: the kind of labels that the task learns (graphfile/labels.py); '' for the kind of its name.
    """

    name: str
    said: str
    outputs: str
    metrics: ClassVar[dict[str, Metric]]
    losses: tuple[str, ...]
    probabilities: Callable[[torch.Tensor], torch.Tensor] | None
    judged: str = "nodes"
    rows: str = "prediction"
    traits: TaskTraits = TaskTraits()
    labels: str = ""

    def check(self, options: TaskConfig) -> None:
        """Raise ConfigError, to be raised on all ranks, for options of the loss that the task does not have: here those
        of classes.
        """
        for flag, given in (
            (f"--label-smoothing {options.label_smoothing:g}", options.label_smoothing > 0),
            (f"--class-weights {options.class_weights}", options.class_weights != "none"),
        ):
            if given:
                raise ConfigError.on_all(
                    f"{flag} is of the cross-entropy between classes, and the labels of the graph are for {self.name} "
                    f"({self.said}); leave it out"
                )

    def learns(self, kind: str) -> bool:
        """Whether the task learns a kind of labels."""
        return kind == (self.labels or self.name)

    def predict(self, outputs: torch.Tensor) -> torch.Tensor:
        """Return the predictions in a file, (n_p, K): integers, or floating-point for real numbers."""

    def columns(self, outputs: int, names: Sequence[str] = ()) -> Sequence[str]:
        """Return the headings of the K columns of `predict` for a number of model outputs. names: of the outputs in the
        graph file, or empty.
        """

    def blank(self, nodes: int, outputs: int) -> torch.Tensor:
        """Return placeholder labels of `nodes` nodes, in the form of a rank's labels."""


class LabelTask(Task, Protocol):
    """A task that is learned from labels of nodes."""

    def by_class(
        self, outputs: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor, comm: Communicator, names: Sequence[str]
    ) -> dict[str, Any]:
        """{name: table for files} of the nodes of a mask, {} for none. Takes what a Score takes, and the names of the
        classes, or empty. Collective.
        """
        return {}

    def configured(self, options: TaskConfig, labels: torch.Tensor, outputs: int, comm: Communicator) -> "LabelTask":
        """Return the task with its options of the loss. Collective. labels: of this rank's training nodes; outputs: of
        the model.
        """
        return self

    def weight(self, labels: torch.Tensor) -> float:
        """Return the divisor that, summed over ranks, turns the sum of these labels' losses into a mean."""

    def targets(self, labels: torch.Tensor, scale: "Scale | None") -> torch.Tensor:
        """Return the targets of the loss, from the labels of the training nodes."""

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
        """Return the scale that leaves targets as they are, until a state is loaded."""
        return cls(torch.zeros(targets, dtype=torch.float64), torch.ones(targets, dtype=torch.float64))

    def standardise(self, targets: torch.Tensor) -> torch.Tensor:
        """float64 (n, T) of targets in the user's units."""
        return (targets.double() - self.mean) / self.deviation

    def in_units(self, outputs: torch.Tensor) -> torch.Tensor:
        """float64 (n, T) in the user's units, of outputs of a model."""
        return outputs.double() * self.deviation + self.mean
