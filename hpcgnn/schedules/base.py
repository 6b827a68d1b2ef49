"""A schedule is two independent choices: what is done about the halo, and how the ranks' models are kept together.

    halo policy   full | frozen | none | sampled | stale        what operators do about remote rows
    sync policy   all-reduce every step | by layer | averaging  what is trained when, what happens to gradients
`sar` = full × all-reduce, `lazy` = frozen × by layer, `tma` = none × averaging, `bns` = sampled × all-reduce,
`stale` = stale × all-reduce. The training loop calls the verbs below and never asks which schedule it is running.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from hpcgnn.comm.communicator import Communicator, Exchange
from hpcgnn.config import Config
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.graph.local import LocalGraph
from hpcgnn.nn.graph import Graph
from hpcgnn.nn.model import Model
from hpcgnn.ops.draws import Randomness
from hpcgnn.ops.operators import Made, Operator
from hpcgnn.options import OptimConfig
from hpcgnn.traits import ScheduleTraits


class HaloPolicy(Protocol):
    """What is done about remote rows. n_p: own rows; m: those that are computed, all unless rows are pruned.

    Where rows are pruned (graph/transforms/pruning.py), it is a PrunableHalo.
    """

    def begin_epoch(self, epoch: int) -> None:
        """Called by all ranks before the forward pass of an epoch."""

    @property
    def overflowed(self) -> bool:
        """Whether a number was too large for the way to another rank, on this rank."""

    @property
    def has_state(self) -> bool:
        """Whether anything must be saved for a resumed run to go on as if it had not been stopped."""

    @property
    def kept_bytes(self) -> int:
        """What this rank keeps from epoch to epoch besides the communication buffers."""

    def state(self) -> dict[str, torch.Tensor]:
        """What this rank must save. All ranks call it."""

    def load_state(self, tensors: dict[str, torch.Tensor]) -> None:
        """Go on from what `state` gave on the same rank of a run on as many ranks and the same map. All ranks, at the
        start.
        """

    def operator(self, description: Operator[Made]) -> Made:
        """The operator that a layer asks for (see ops/operators.py). It is made, and used, by all ranks together.
        Raises ConfigError where the policy has no such operator.
        """


class PrunableHalo(HaloPolicy, Protocol):
    """A HaloPolicy of a schedule that prunes."""

    def restricted(self, local: LocalGraph) -> HaloPolicy:
        """The same policy for what a layer computes of the graph, a LocalGraph with `outputs`."""


class Stateless:
    """For policies that keep nothing from epoch to epoch."""

    has_state = False

    @property
    def overflowed(self) -> bool:
        """No number was."""
        return False

    @property
    def kept_bytes(self) -> int:
        """Nothing is."""
        return 0

    def state(self) -> dict[str, torch.Tensor]:
        """Nothing."""
        return {}

    def load_state(self, tensors: dict[str, torch.Tensor]) -> None:
        """Nothing."""


@dataclass(frozen=True)
class Stage:
    """What is trained for some epochs.

    module: module(graph) -> logits (n_p, C), whose parameters are trained and no others; options: OptimConfig, its
    learning rate and number of epochs. optimizers: how many, each with a state of its own. note: {name: value} for the
    records of its epochs.
    """

    module: torch.nn.Module
    options: OptimConfig
    optimizers: int = 1
    note: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    """One gradient step of an epoch. graph: what is trained on; reduce(flat gradients): what is done to them before the
    step, by all ranks that take this step; optimizer: the number of the one that steps; number: from 0 in each epoch,
    which draws are keyed by besides; factor: of this rank's share in the reported loss. begin(part of the flat
    gradients): begins for a part what `reduce` does; None where there is nothing to wait for.
    """

    graph: Graph
    reduce: Callable[[torch.Tensor], None]
    optimizer: int = 0
    number: int = 0
    factor: float = 1.0
    begin: Callable[[torch.Tensor], Exchange] | None = None


class Optimizer(Protocol):
    """What a SyncPolicy knows of an optimizer (engine/optim.py): the state of each parameter, by names."""

    param_groups: list[dict[str, Any]]
    state: dict[torch.Tensor, dict[str, torch.Tensor]]
    state_names: tuple[str, ...]


class SyncPolicy(Protocol):
    """How training proceeds: in which stages, of which steps an epoch consists, how the ranks' parameters are kept
    together.

    Between epochs all ranks hold the same parameters. Everything is called by all ranks alike. first_whole: the first
    stage that trains the model's own output, so that the model can be evaluated; known after `extend`.
    """

    first_whole: int

    def plan(self, options: OptimConfig) -> list[OptimConfig]:
        """[OptimConfig] of the stages of a whole run, from that of the configuration."""

    def extend(self, model: Model) -> None:
        """Add to a new model what this schedule trains besides it."""

    def stage(self, index: int, options: OptimConfig, model: Model, graph: Graph) -> Stage:
        """The stage number `index`, whose options are options = plan[index]. Nothing is sent or computed yet."""

    def follow(self, index: int, model: Model) -> bool:
        """Called with the best parameters of stage index - 1 in place, before stage `index` begins. Returns whether the
        best of before is still to be beaten (the model is the same predictor).
        """

    def steps(self, epoch: int, stage: Stage, graph: Graph, optimizers: Sequence[Optimizer]) -> Iterator[Step]:
        """The steps of an epoch. Resumed after each step, and then run to its end."""

    def state(self, optimizers: Sequence[Optimizer]) -> dict[str, torch.Tensor]:
        """{name: tensor} that a checkpoint needs besides the model and the first optimizer; complete on rank 0.
        Collective.
        """

    def restore(self, state: Mapping[str, torch.Tensor], optimizers: Sequence[Optimizer]) -> None:
        """Go on from a checkpoint with this state ({} if it had none). Collective."""


@dataclass(frozen=True)
class Schedule:
    """A halo policy and a sync policy."""

    halo: HaloPolicy
    sync: SyncPolicy


Build = Callable[[LocalGraph, Communicator, HaloBuffers, Config, Randomness], Schedule]


def _nothing_to_check(config: Config, layers: int) -> None:
    """For schedules whose options need no other check than their ranges."""


@dataclass(frozen=True)
class ScheduleEntry:
    """A schedule on offer.

    Attributes:
        build: makes the Schedule of a LocalGraph. Collective.
        traits: what the schedule allows.
        check: check(config, layers) raises ConfigError for options of the schedule that do not fit each other or the
            number of layers that are trained.
    """

    build: Build
    traits: ScheduleTraits
    check: Callable[[Config, int], None] = _nothing_to_check
