"""A schedule is two independent choices: what is done about the halo, and how the ranks' models are kept together.

    halo policy   full | frozen | none | sampled | stale        what operators do about remote rows
    sync policy   all-reduce every step | by layer | averaging  what is trained when, what happens to gradients
`sar` = full × all-reduce, `lazy` = frozen × by layer, `tma` = none × averaging, `bns` = sampled × all-reduce,
`stale` = stale × all-reduce. The training loop calls the verbs below and never asks which schedule it is running.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import torch

from hpcgnn.ops.operators import Operator


class HaloPolicy(Protocol):
    """What is done about remote rows. n_p: own rows; m: those that are computed, all unless rows are pruned.

    Where the Schedule prunes, there is restricted(local) as well: the same policy for what a layer computes of the
    graph.
    """

    def begin_epoch(self, epoch: int) -> None:
        """Called by all ranks before the forward pass of an epoch."""

    overflowed: bool  # whether a number was too large for the way to another rank, on this rank
    has_state: bool  # whether anything must be saved for a resumed run to go on as if it had not been stopped
    kept_bytes: int  # what this rank keeps from epoch to epoch besides the communication buffers

    def state(self) -> dict[str, torch.Tensor]:
        """What this rank must save. All ranks call it."""

    def load_state(self, tensors: dict[str, torch.Tensor]) -> None:
        """Go on from what `state` gave on the same rank of a run on as many ranks and the same map. All ranks, at the
        start.
        """

    def operator(self, description: Operator):
        """The operator that a layer asks for (see ops/operators.py). It is made, and used, by all ranks together.
        Raises ConfigError where the policy has no such operator.
        """


class Stateless:
    """For policies that keep nothing from epoch to epoch."""

    overflowed, has_state, kept_bytes = False, False, 0

    def state(self):
        """Nothing."""
        return {}

    def load_state(self, tensors):
        """Nothing."""


@dataclass(frozen=True)
class Stage:
    """What is trained for some epochs.

    module: module(graph) -> logits (n_p, C), whose parameters are trained and no others; options: OptimConfig, its
    learning rate and number of epochs. optimizers: how many, each with a state of its own. note: {name: value} for the
    records of its epochs.
    """

    module: torch.nn.Module
    options: object
    optimizers: int = 1
    note: dict = field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    """One gradient step of an epoch. graph: what is trained on; reduce(flat gradients): what is done to them before the
    step, by all ranks that take this step; optimizer: the number of the one that steps; number: from 0 in each epoch,
    which draws are keyed by besides; factor: of this rank's share in the reported loss.
    """

    graph: object
    reduce: Callable
    optimizer: int = 0
    number: int = 0
    factor: float = 1.0


class SyncPolicy(Protocol):
    """How training proceeds: in which stages, of which steps an epoch consists, how the ranks' parameters are kept
    together.

    Between epochs all ranks hold the same parameters. Everything is called by all ranks alike. first_whole: the first
    stage that trains the model's own output, so that the model can be evaluated; known after `extend`.
    """

    first_whole: int

    def plan(self, options) -> list:
        """[OptimConfig] of the stages of a whole run, from that of the configuration."""

    def extend(self, model: torch.nn.Module) -> None:
        """Add to a new model what this schedule trains besides it."""

    def stage(self, index: int, options, model: torch.nn.Module, graph) -> Stage:
        """The stage number `index`, whose options are options = plan[index]. Nothing is sent or computed yet."""

    def follow(self, index: int, model: torch.nn.Module) -> bool:
        """Called with the best parameters of stage index - 1 in place, before stage `index` begins. Returns whether the
        best of before is still to be beaten (the model is the same predictor).
        """

    def steps(self, epoch: int, stage: Stage, graph, optimizers: list) -> Iterator[Step]:
        """The steps of an epoch. Resumed after each step, and then run to its end."""

    def state(self, optimizers: list) -> dict:
        """{name: tensor} that a checkpoint needs besides the model and the first optimizer; complete on rank 0.
        Collective.
        """

    def restore(self, state: dict, optimizers: list) -> None:
        """Go on from a checkpoint with this state ({} if it had none). Collective."""


@dataclass(frozen=True)
class Schedule:
    """A halo policy and a sync policy. prunes: whether layers may compute some of their rows only (see
    graph/pruning.py).
    """

    halo: HaloPolicy
    sync: SyncPolicy
    prunes: bool = False
