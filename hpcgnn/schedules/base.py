"""A schedule is two independent choices: how ranks treat the halo, and how they keep their models together.

    halo policy   full | frozen | none | sampled                how operators get remote rows
    sync policy   all-reduce every step | by layer | averaging  which parameters train when, and how gradients combine

`sar` = full × all-reduce, `lazy` = frozen × by layer, `tma` = none × averaging, `bns` = sampled × all-reduce. The
training loop calls the verbs below and never checks which schedule it runs.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from hpcgnn.comm.communicator import Communicator
from hpcgnn.config import Config
from hpcgnn.errors import ConfigError
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.graph.local import LocalGraph
from hpcgnn.graphfile.schema import GraphMeta
from hpcgnn.nn.graph import Graph
from hpcgnn.nn.model import Model
from hpcgnn.nn.spec import ModelSpec
from hpcgnn.ops.draws import Randomness
from hpcgnn.ops.operators import Made, Operator
from hpcgnn.options import OptimConfig, ScheduleConfig
from hpcgnn.registry import Registry
from hpcgnn.traits import ScheduleTraits


class HaloPolicy:
    """How operators get remote rows. This one keeps nothing from epoch to epoch.

    Attributes:
        n_p: number of owned rows.
        m: number of computed rows, n_p unless rows are pruned.
        has_state: whether anything must be saved for a resumed run to go on as if it had not been stopped.
    """

    has_state = False

    def begin_epoch(self, epoch: int) -> None:
        """Called by all ranks before the forward pass of an epoch."""

    @property
    def kept_bytes(self) -> int:
        """The bytes that this rank keeps from epoch to epoch, without the communication buffers."""
        return 0

    def state(self) -> dict[str, torch.Tensor]:
        """Return the tensors that this rank must save. All ranks call it."""
        return {}

    def load_state(self, tensors: dict[str, torch.Tensor]) -> None:
        """Continue from the saved `state` of the same rank, with the same number of ranks and map. All ranks, at the
        start.
        """

    def operator(self, description: Operator[Made]) -> Made:
        """The operator that a layer asks for (see ops/operators.py). It is made, and used, by all ranks together.
        Raises ConfigError where the policy has no such operator.
        """
        raise NotImplementedError

    def restricted(self, local: LocalGraph) -> "HaloPolicy":
        """Return the same policy for a layer's part of the graph, a LocalGraph with `outputs`; of a schedule that
        prunes (graph/transforms/pruning.py).
        """
        raise NotImplementedError


class PushedHalo(HaloPolicy):
    """A policy that uses some or old rows of other ranks (see ops/linear_aggregation.py), and refuses operators that do
    not go with such rows. name: of the schedule, for its errors.

    It has _make(description): the operator of the present call.
    """

    name = ""

    def operator(self, description: Operator[Made]) -> Made:
        """See HaloPolicy."""
        if not description.pushes:
            raise ConfigError(
                f"--schedule {self.name} is not for models {description.models}: expected gcn, sage, "
                "gin, sgc or gat, or --schedule sar"
            )
        return self._make(description)

    def _make(self, description: Operator[Made]) -> Made:
        raise NotImplementedError


@dataclass(frozen=True)
class Stage:
    """The parameters that train for some epochs.

    Attributes:
        module: module(graph) -> logits (n_p, C); only its parameters train.
        options: OptimConfig, with learning rate and number of epochs.
        optimizers: number of optimizers, each with a state of its own.
        note: {name: value} for the records of the stage's epochs.
    """

    module: torch.nn.Module
    options: OptimConfig
    optimizers: int = 1
    note: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    """One gradient step of an epoch.

    Attributes:
        graph: the graph of the step.
        reduce: reduce(flat gradients) before the step, by all ranks that take it.
        optimizer: number of the step's optimizer.
        number: from 0 in each epoch, a key of the draws.
        nodes: int64, the own rows that the step computes, or None for all.
        share: factor of its loss in the epoch's loss; 0: the epoch's loss is that of its last step.
        moves: whether parameters move after it; else its gradients wait for those of the next one.
    """

    graph: Graph
    reduce: Callable[[torch.Tensor], None]
    optimizer: int = 0
    number: int = 0
    nodes: torch.Tensor | None = None
    share: float = 0.0
    moves: bool = True


class OptimizerState(Protocol):
    """A sync policy's view of an optimizer (engine/optim.py): the state of each parameter, by names."""

    param_groups: list[dict[str, Any]]
    state: dict[torch.Tensor, dict[str, torch.Tensor]]
    state_names: tuple[str, ...]


class AllreduceEveryStep:
    """How training proceeds: its stages, the steps of an epoch, and how ranks keep their parameters together.

    This sync policy, the base of all others, has one stage with one step per epoch. Each step sums gradients over
    ranks. Between epochs all ranks hold the same parameters. All ranks call all methods alike.

    Attributes:
        first_whole: the first stage that trains the model's own output, so that the model can be evaluated; known after
            `extend`.
    """

    first_whole = 0

    def __init__(self, comm: Communicator) -> None:
        self._comm = comm

    def plan(self, options: OptimConfig) -> list[OptimConfig]:
        """Return the OptimConfig of each stage of a whole run, from the configuration's."""
        return [options]

    def extend(self, model: Model) -> None:
        """Add the schedule's own parameters to a new model."""

    def stage(self, index: int, options: OptimConfig, model: Model, graph: Graph) -> Stage:
        """The stage number `index`, whose options are options = plan[index]. Nothing is sent or computed yet."""
        return Stage(model, options)

    def prepare(self, graph: Graph) -> None:
        """Make what the steps need of the graph, before the first epoch. Collective."""

    def steps(self, epoch: int, stage: Stage, graph: Graph, optimizers: Sequence[OptimizerState]) -> Iterator[Step]:
        """The steps of an epoch. Resumed after each step, and then run to its end."""
        yield Step(graph, self.reduce)

    def reduce(self, gradients: torch.Tensor) -> None:
        """Sum the flat gradients (one buffer, one message) over all ranks in place. Collective."""
        self._comm.allreduce_(gradients, "allreduce")

    def state(self, optimizers: Sequence[OptimizerState]) -> dict[str, torch.Tensor]:
        """Return {name: tensor} for a checkpoint, in addition to the model and the first optimizer. Collective.

        The result is complete on rank 0.
        """
        return {}

    def restore(self, state: Mapping[str, torch.Tensor], optimizers: Sequence[OptimizerState]) -> None:
        """Go on from a checkpoint with this state ({} if it had none). Collective."""


@dataclass(frozen=True)
class Schedule:
    """A halo policy and a sync policy."""

    halo: HaloPolicy
    sync: AllreduceEveryStep


Build = Callable[[LocalGraph, Communicator, HaloBuffers, Config, Randomness], Schedule]


class ChangingEdges(Protocol):
    """An option by which training with `sar` sees other edges in every epoch."""

    def applies(self, config: Config) -> bool:
        """Whether the option is given."""

    def halo(
        self, local: LocalGraph, comm: Communicator, buffers: HaloBuffers, config: Config, random: Randomness
    ) -> HaloPolicy:
        """The halo policy in place of that of `sar`. Collective."""


CHANGING_EDGES: Registry[ChangingEdges] = Registry("option of edges")


def changing_edges(config: Config) -> ChangingEdges | None:
    """The option by which training sees other edges in every epoch, if one is given."""
    return next((each for each in CHANGING_EDGES.values() if each.applies(config)), None)


def _nothing(*given: Any) -> None:
    """For schedules that have nothing to check."""


@dataclass(frozen=True)
class ScheduleEntry:
    """A schedule on offer.

    Attributes:
        build: makes the Schedule of a LocalGraph. Collective.
        traits: capabilities and limits of the schedule.
        check: check(config, layers) raises ConfigError for options of the schedule that do not fit each other, or the
            number of layers.
        options: the options of the schedule alone: a ScheduleConfig with more fields, or None.
        check_graph: likewise check_graph(config, metadata of the graph, ModelSpec).
        reads_clusters: the schedule reads the cluster of each node.
    """

    build: Build
    traits: ScheduleTraits
    check: Callable[[Config, int], None] = _nothing
    options: type[ScheduleConfig] | None = None
    check_graph: Callable[[Config, GraphMeta, ModelSpec], None] = _nothing
    reads_clusters: bool = False
