"""Boundary sampling (BNS-GCN: Wan et al., MLSys'22): each epoch a rank uses a random part of its halo.

Each epoch keeps each boundary node with probability p for each other rank, for all layers and the backward pass. Rows
are multiplied by 1/p, and degrees come from the whole graph, so a layer's linear aggregate is unbiased, given its
input. In attention, −log p is added to the logits of sampled edges instead. Numerator and denominator of the softmax
are unbiased, and their ratio tends to the right one.

Both directions use the same sample, so the gradients are exactly the sampled function's.

Each epoch makes a sample of the edge blocks and its transpose: 2p of the memory of the blocks between ranks.
"""

import math
from dataclasses import dataclass
from typing import Any, cast

from hpcgnn.comm.communicator import Communicator
from hpcgnn.config import Config
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.exchange.row_codec import RowCodec
from hpcgnn.exchange.stream import Stream
from hpcgnn.graph.blocks import transposed
from hpcgnn.graph.local import LocalGraph
from hpcgnn.graph.transforms.sampling import sample_blocks, sample_plan
from hpcgnn.ops.draws import Purpose, Randomness
from hpcgnn.ops.operator_context import HaloFacts, PushContext
from hpcgnn.ops.operators import Made, Operator
from hpcgnn.option_fields import option
from hpcgnn.options import ScheduleConfig
from hpcgnn.schedules.base import AllreduceEveryStep, PushedHalo, Schedule, ScheduleEntry
from hpcgnn.schedules.full_halo import ApproximateInTraining, FullHalo, make_wire
from hpcgnn.traits import ScheduleTraits


@dataclass(frozen=True, kw_only=True)
class BnsConfig(ScheduleConfig):
    """The options of `bns`."""

    boundary_rate: float = option(
        0.1,
        "bns: probability of a boundary node in an epoch",
        details="1 gives sar, 0 leaves ranks alone. Evaluation uses all nodes.",
        least=0.0,
        most=1.0,
        schedules=("bns",),
    )


class SampledHalo(PushedHalo):
    """A sample of the halo in each epoch. rate: p; wire: RowCodec; facts: HaloFacts; random: Randomness, which decides
    the sample.
    """

    name = "bns"

    def __init__(
        self,
        local: LocalGraph,
        comm: Communicator,
        buffers: HaloBuffers,
        wire: RowCodec,
        facts: HaloFacts,
        random: Randomness,
        rate: float,
    ) -> None:
        self._local, self._comm, self.buffers = local, comm, buffers
        self._wire, self._facts, self._random, self.rate = wire, facts, random, rate
        self._site: PushContext | None = None
        self._operators: dict[Operator[Any], Any] = {}

    def begin_epoch(self, epoch: int) -> None:
        """Draw the sample of this epoch. All ranks, for the ids of the halo are fetched once."""
        self._wire.begin_epoch(epoch)
        self._site, self._operators = None, {}  # the old sample goes before the new one is made
        inward, ids = self._local.inward, self._facts.inward_ids()
        key = self._random.key(Purpose.BOUNDARY, 0)
        self.plan, kept = sample_plan(inward.plan, self._local.original_id, ids, key, self.rate)
        blocks = sample_blocks(inward.halo, inward.plan, self.plan, kept)
        means = self.plan, self.buffers, self._comm, self._wire
        used = Stream(inward.own, blocks, *means)
        push = Stream(self._local.outward.own, [transposed(block) for block in blocks], *means)
        factor, added = (1 / self.rate, -math.log(self.rate)) if self.rate else (1.0, 0.0)
        self._site = PushContext(self._local, used, push, self._facts, ids[kept], factor, added)

    def _make(self, description: Operator[Made]) -> Made:
        assert self._site is not None, "an epoch has begun"
        if description not in self._operators:
            self._operators[description] = description.pushed(self._site)
        return self._operators[description]


def build_bns(
    local: LocalGraph, comm: Communicator, buffers: HaloBuffers, config: Config, random: Randomness
) -> Schedule:
    """Sampled halo, all-reduce at every step. config: Config; random: Randomness."""
    options = cast(BnsConfig, config.schedule)
    facts = HaloFacts(local, comm)
    exact = FullHalo(local, comm, buffers, facts=facts)
    wire = make_wire(options, local, random)
    training = SampledHalo(local, comm, buffers, wire, facts, random, options.boundary_rate)
    return Schedule(ApproximateInTraining(exact, training), AllreduceEveryStep(comm))


SCHEDULE = ScheduleEntry(
    build_bns,
    ScheduleTraits(changing_input=True, narrows_rows=True),
    options=BnsConfig,
)
