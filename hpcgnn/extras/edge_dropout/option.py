"""The option `--edge-dropout`, its rules, and the halo policy that it asks for."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import torch

from hpcgnn.comm.communicator import Communicator
from hpcgnn.config import Config
from hpcgnn.errors import GraphError
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.extras.edge_dropout.dropped_halo import DroppedHalo, Dropping
from hpcgnn.graph.local import LocalGraph
from hpcgnn.nn.registry import MODELS
from hpcgnn.ops.draws import Randomness
from hpcgnn.ops.operator_context import HaloFacts
from hpcgnn.option_fields import option
from hpcgnn.options import ModelConfig
from hpcgnn.plan.run_plan import RunPlan
from hpcgnn.schedules.base import HaloPolicy
from hpcgnn.schedules.full_halo import ApproximateInTraining, FullHalo, make_wire


@dataclass(frozen=True, kw_only=True)
class EdgeDropoutConfig(ModelConfig):
    """The option."""

    edge_dropout: float = option(
        0.0,
        "probability with which an edge is left out of a training epoch",
        details="Evaluation uses all edges (docs/models.md).",
        least=0.0,
        below=1.0,
        schedules=("sar",),
        strict=True,
        on_resume="same",
    )


def rate_of(config: Config) -> float:
    """The probability of a configuration."""
    return cast(EdgeDropoutConfig, config.model).edge_dropout


class EdgeDropout:
    """Other edges in every epoch, as a ChangingEdges."""

    def applies(self, config: Config) -> bool:
        """Whether edges are left out."""
        return rate_of(config) > 0

    def halo(
        self, local: LocalGraph, comm: Communicator, buffers: HaloBuffers, config: Config, random: Randomness
    ) -> HaloPolicy:
        """Every remote row, along the edges that are left. Raises GraphError on all ranks for weights below 0 that the
        model divides by.
        """
        if MODELS[config.model.model].divisor():
            _check_signs(local, comm, config)
        facts = HaloFacts(local, comm)
        exact = FullHalo(local, comm, buffers, facts=facts)
        wire = make_wire(config.schedule, local, random)
        dropped = DroppedHalo(local, comm, buffers, wire, facts, Dropping(exact, rate_of(config), random))
        return ApproximateInTraining(exact, dropped)


def _check_signs(local: LocalGraph, comm: Communicator, config: Config) -> None:
    """Raise GraphError, on all ranks, where a weight is below 0. Collective."""
    weights = [block.weight for block in (local.inward.own, *local.inward.halo) if block.weight is not None]
    below = sum(int((weight < 0).sum()) for weight in weights)
    if comm.total(torch.tensor([below]), "plan").item():
        raise GraphError.on_all(
            f"edges have weights below 0, and {config.model.model} divides by the sum of those that --edge-dropout "
            f"{rate_of(config):g} leaves, which could be near 0: expected weights of 0 or more; use --model gin, or "
            "leave --edge-dropout out"
        )


def rule(of: RunPlan) -> Iterator[str]:
    """For hpcgnn.plan.rules."""
    model, rate = of.config.model, rate_of(of.config)
    if rate > 0 and model.keep_input == "always":
        yield (
            f"--keep-input always keeps an aggregate that does not change, got --edge-dropout {rate:g}, which leaves "
            "out other edges in every epoch; leave one of them out"
        )
    if rate > 0 and (of.layers.neighbours == "none" or of.model.divisor() == "relation"):
        yield f"--edge-dropout {rate:g} is not for --model {model.model}: leave it out, or take another model"


def counted(of: RunPlan) -> Iterator[str]:
    """Degrees that ranks tell each other in every epoch."""
    if (rate := rate_of(of.config)) > 0 and of.config.run.precision == "mixed":
        yield (
            "estimate does not count the degrees that ranks tell each other in every epoch with --edge-dropout "
            f"{rate:g} and --precision mixed; expected --precision fp32, or no --edge-dropout"
        )
