"""The interface between training and a task, so that training never checks which task it runs.

A task gets rows of a model's outputs and of labels, both of one rank. `total` sums over ranks, so that every number
covers the whole graph.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import torch

from hpcgnn.comm.communicator import Communicator
from hpcgnn.config import Config
from hpcgnn.errors import ConfigError
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.graph.load import TaskEdges
from hpcgnn.graph.local import LocalGraph
from hpcgnn.graphfile.schema import GraphMeta
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.nn.graph import Graph
from hpcgnn.nn.spec import ModelSpec
from hpcgnn.ops.draws import Randomness
from hpcgnn.traits import TaskTraits

# (outputs (n_p, C), labels, mask bool (n_p,), comm) -> the value over the nodes of the mask on all ranks; NaN where it
# is not defined. Collective.
Score = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, Communicator], float]


@dataclass(frozen=True)
class Metric:
    """score: see Score. lower: whether lower is better. outputs: the number of a model's outputs that it needs, 0 for
    any. together: the scores of several masks, bool (S, n_p), from one message; None: one by one.
    """

    score: Score
    lower: bool = False
    outputs: int = 0
    together: Callable[[torch.Tensor, torch.Tensor, torch.Tensor, Communicator], list[float]] | None = None

    def better(self, value: float, than: float) -> bool:
        """Whether a value is better than another one."""
        return value < than if self.lower else value > than

    @property
    def direction(self) -> str:
        """Which values are better, in a word."""
        return "lower" if self.lower else "higher"


@dataclass(frozen=True)
class Setting:
    """The parts of losses and metrics: the model, this rank's share, and its part that training sees."""

    model: torch.nn.Module
    local: LocalGraph
    trained_on: LocalGraph
    graph: Graph
    comm: Communicator
    buffers: HaloBuffers
    random: Randomness
    config: Config


@dataclass(frozen=True)
class EpochWork:
    """The work of an epoch on a graph file, for an estimate: an epoch on a small copy has one of each.

    Attributes:
        passes, moves: passes through the model in training, and moves of the optimizer.
        judged: {split: passes through the model in an evaluation}, for splits that are judged apart.
        held: bytes of rows of the graph file that are in memory, from a number of own nodes.
    """

    passes: int = 1
    moves: int = 1
    judged: Mapping[str, int] = field(default_factory=lambda: {"all": 1})
    held: Callable[[int], int] = lambda nodes: 0


class Loss(Protocol):
    """The loss of a task over the whole graph. num_train: the number of its terms."""

    num_train: int

    def steps(self, steps: Iterator[Any]) -> Iterator[Any]:
        """The steps of an epoch (schedules/base.py), from those of the schedule."""
        return steps

    def of_step(self, module: torch.nn.Module, step: Any) -> torch.Tensor:
        """This rank's share of the loss of a step, whose stage trains a module. Collective."""
        return self.local_loss(module(step.graph), step.nodes)

    def local_loss(self, outputs: torch.Tensor, nodes: torch.Tensor | None = None) -> torch.Tensor:
        """This rank's share of the mean loss: a scalar; the shares of all ranks add up to the loss. outputs: (n_p, C)
        of own nodes; nodes: int64 (b,), if these are some own nodes alone.
        """


class Judge:
    """A judge of a model's outputs: it runs the model as it is evaluated, and books the traffic as `evaluation`.

    Attributes:
        task: the task, with metrics that fit the graph.
        name, metric: the metric that chooses the best epoch.
        counts: {split: number of the objects that the metric averages over, on all ranks}.
    """

    task: "Task"
    name: str
    metric: Metric
    counts: dict[str, int]
    _comm: Communicator

    def __call__(
        self, model: torch.nn.Module, graph: Graph, judge: Callable[[Any], dict[str, Any]] | None = None
    ) -> dict[str, Any]:
        """Return the result of `judge`, by default `scores`, on the model's outputs. Collective."""
        model.eval()
        with torch.no_grad(), self._comm.ledger.booked_as("evaluation"):
            result = (judge or self.scores)(self.outputs(model, graph))
        model.train()
        return result

    def outputs(self, model: torch.nn.Module, graph: Graph) -> Any:
        """A model's outputs (n_p, C) of own nodes, as `scores` and `report` take them. Collective."""
        return model(graph)

    def rows(self) -> Any:
        """What is in memory of rows that steps read from the graph file."""

    def scores(self, outputs: Any) -> dict[str, Any]:
        """{'train', 'val', 'test': value of the metric}, and tables, of a model's `outputs`. Collective."""
        raise NotImplementedError

    def report(self, outputs: Any, names: Sequence[str]) -> dict[str, Any]:
        """Return `scores`, and all else that files have of an evaluation. names: of the classes, or empty."""
        return self.scores(outputs)

    def in_units(self, outputs: torch.Tensor) -> torch.Tensor:
        """A model's outputs (n_p, C) in the units of the predictions."""
        return outputs


class Task(Protocol):
    """A task. Its methods here are for a task without options of its own.

    Attributes:
        metrics: names of the metrics; `--metric auto` takes the first.
        losses: names of the losses, likewise.
        said: the task in words.
        outputs: name of the objects with one model output each.
        judged: name of the objects that metrics average over.
        probabilities: probabilities (n, C) from outputs (n, C); None if there are none.
        rows: name of the rows of `predict` in files.
        module: name of the task's own module of a model, '' for none.
        traits: the needs of the task.
        labels: the kind of labels that the task learns (graphfile/label_files.py); '' for the kind of its name.
    """

    name: str
    said: str
    outputs: str
    metrics: ClassVar[dict[str, Metric]]
    losses: tuple[str, ...]
    probabilities: Callable[[torch.Tensor], torch.Tensor] | None = None
    judged: str = "nodes"
    rows: str = "prediction"
    module: str = ""
    traits: TaskTraits = TaskTraits()
    labels: str = ""

    def learns(self, kind: str) -> bool:
        """Whether the task learns a kind of labels."""
        return kind == (self.labels or self.name)

    def resolve(self, config: Config, meta: GraphMeta) -> Config:
        """The configuration with the task, its metric and its loss in place of `auto`. Raises ConfigError, to be raised
        on all ranks, for options that do not fit.
        """
        metric = self.fitting_metric(config.run.metric, meta.num_classes)
        loss = self.fitting_loss(config.task.loss)
        return config.replace(task=self.name, metric=metric, loss=loss)

    def num_outputs(self, config: Config, meta: GraphMeta) -> int:
        """The number of a model's outputs."""
        return config.model.hidden if self.traits.embeds else meta.num_classes

    def num_columns(self, config: Config, meta: GraphMeta) -> int:
        """The number of input columns that the task gives anew in each step (`Graph.with_columns`)."""
        return 0

    def metrics_of(self, outputs: int) -> dict[str, Metric]:
        """The metrics for a number of a model's outputs."""
        return {name: metric for name, metric in self.metrics.items() if metric.outputs in (0, outputs)}

    def fitting_metric(self, name: str, outputs: int) -> str:
        """The metric of this name, or for `auto` the first. Raises ConfigError, to be raised on all ranks."""
        fitting = self.metrics_of(outputs)
        if name in self.metrics and name not in fitting:
            raise ConfigError.on_all(
                f"--metric {name}: expected {self.metrics[name].outputs} {self.outputs}, and the graph has {outputs}; "
                f"take {' or '.join(fitting)}"
            )
        return self._fitting("--metric", name, tuple(fitting))

    def fitting_loss(self, name: str) -> str:
        """The loss of this name, likewise."""
        return self._fitting("--loss", name, self.losses)

    def _fitting(self, flag: str, name: str, known: tuple[str, ...]) -> str:
        if name != "auto" and name not in known:
            raise ConfigError.on_all(
                f"{flag} {name} does not fit the task {self.name} ({self.said}); expected {' or '.join(known)}"
            )
        return known[0] if name == "auto" else name

    def elsewhere(self, config: Config, meta: GraphMeta) -> Config:
        """The configuration of a run for another graph than its own."""
        return config.replace(metric="auto")

    def remarks(self, config: Config, file: GraphFile) -> list[str]:
        """Lines about the graph and about options without effect on it. config: resolved."""
        return []

    def work(self, config: Config, spec: ModelSpec, file: GraphFile) -> EpochWork | None:
        """The work of an epoch; None: estimates do not count the task's messages. config: resolved."""
        return EpochWork() if self.traits.labels else None

    def task_edges(self, config: Config) -> TaskEdges:
        """The edges that the task takes out of a graph, and further ones that it reads."""
        return TaskEdges()

    def prepare_model(self, model: torch.nn.Module, spec: ModelSpec, config: Config) -> None:
        """Add the task's own parameters to a new model."""
        return

    def judges(self, on: Setting, learns: bool) -> tuple[Judge, Loss | None]:
        """(the judge, the loss or None if nothing is learned). Collective."""

    def predict(self, outputs: torch.Tensor) -> torch.Tensor:
        """Return the predictions in a file, (n_p, K): integers, or floating-point for real numbers."""
        return outputs

    def columns(self, outputs: int, names: Sequence[str] = ()) -> Sequence[str]:
        """Return the headings of the K columns of `predict` for a number of model outputs. names: of the outputs in the
        graph file, or empty.
        """

    def blank(self, nodes: int, outputs: int) -> torch.Tensor:
        """Return placeholder labels of `nodes` nodes, in the form of a rank's labels."""
        return torch.zeros(nodes, outputs)


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
