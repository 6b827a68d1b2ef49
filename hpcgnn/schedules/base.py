"""A schedule is two independent choices: what is done about the halo, and how the ranks' models are kept together.

    halo policy   full | (sampled, stale, frozen, none)         what `aggregate` does about remote rows
    sync policy   all-reduce every step | (averaging, by layer)  what happens to gradients and parameters
`sar` = full × all-reduce. The training loop calls the verbs below and never asks which schedule it is running.
"""

from dataclasses import dataclass
from typing import Protocol

import torch


class HaloPolicy(Protocol):
    """What is done about remote rows."""

    def begin_epoch(self, epoch: int) -> None:
        """Called by all ranks before the forward pass of an epoch."""

    def aggregate(self, x: torch.Tensor, norm: str) -> torch.Tensor:
        """Own rows (n_p, F) -> (n_p, F), differentiable, collective."""

    def convolve(self, x: torch.Tensor, neighbour, own, bias, norm: str, activation) -> torch.Tensor:
        """A linear convolution, differentiable, collective; see ops/convolution.py."""

    def attend(self, projected: torch.Tensor, shape, key: int, p: float, terms: torch.Tensor | None) -> torch.Tensor:
        """Additive attention over the in-edges, differentiable, collective; see ops/attention.py."""

    def attention_layer(
        self, x: torch.Tensor, weight, bias, terms, shape, key: int, p: float, activation
    ) -> torch.Tensor:
        """A layer of additive attention, differentiable, collective; see ops/attention_layer.py."""

    def largest(self, x: torch.Tensor) -> torch.Tensor:
        """The largest of the in-neighbours' rows by column, differentiable, collective; see ops/extreme.py."""

    def relate(self, x: torch.Tensor, coefficients: torch.Tensor, bases: torch.Tensor) -> torch.Tensor:
        """Relational aggregation, differentiable, collective; see ops/relational.py."""

    def propagate(
        self, rule, x_src: torch.Tensor, x_dst: torch.Tensor | None, edge: torch.Tensor | None
    ) -> torch.Tensor:
        """Any message function, differentiable, collective; see ops/propagate.py."""


class SyncPolicy(Protocol):
    """How the ranks' parameters are kept together."""

    def reduce(self, gradients: torch.Tensor) -> None:
        """Combine the flat gradients of all ranks in place, after the backward pass. Collective."""


@dataclass(frozen=True)
class Schedule:
    """A halo policy and a sync policy."""

    halo: HaloPolicy
    sync: SyncPolicy
