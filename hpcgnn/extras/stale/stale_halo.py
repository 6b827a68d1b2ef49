"""Delayed halo (PipeGCN: Wan et al., ICLR'22; DistGNN: Md et al., SC'21): remote rows are r epochs old.

Each layer sends its rows in epoch t and uses in epoch t the rows that others sent in epoch t − r. So messages have r
epochs to arrive and nothing waits for them. Gradients return in the same manner. A rank computes the whole gradient of
the remote rows it used in an epoch, and their owners add it r epochs later. In attention it uses the softmax, its
denominator and D of that same epoch, so that it is the gradient of a function. No row is fetched twice.

Only remote rows and their gradients are delayed; the rest is the exact derivative of the computed function:

    Y = A_own V + A_halo V_used        gV = A_ownᵀ gY + returned gradients (A_haloᵀ gY of r epochs ago)

In a layer that widens its input X or keeps its width, V = X and gW = (A X_used)ᵀ gY, which is PipeGCN to the letter.
Where d_out < d_in, the narrower product V = X W travels, as in `sar`, so that the bytes are the same. Its old rows then
come from old weights as well. And gW = Xᵀ gV contains old gradients of others, as the gradients of all layers below do
in PipeGCN. With attention V = [X W | a_src] in every layer. The first layer's kept aggregate of the features is exact.

In the first r epochs, and after resuming with another number of ranks, there are no old rows yet. Ranks then wait for
the new ones.

The price is memory that does not fall linearly with the number of ranks. Every layer keeps r + 1 epochs of the halo's
rows and their gradients, and the transposed blocks of edges between ranks. It is counted, and a warning reports it.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import torch

from hpcgnn.comm.communicator import Communicator
from hpcgnn.config import Config
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.exchange.row_codec import RowCodec
from hpcgnn.extras.stale.streams import Mailbox, PushedGradients, StaleExchange, UsedRows
from hpcgnn.graph.blocks import transposed
from hpcgnn.graph.local import LocalGraph
from hpcgnn.ops.draws import Randomness
from hpcgnn.ops.operator_context import HaloFacts, PushContext
from hpcgnn.ops.operators import Made, Operator
from hpcgnn.option_fields import option
from hpcgnn.options import ScheduleConfig
from hpcgnn.schedules.base import AllreduceEveryStep, PushedHalo, Schedule, ScheduleEntry
from hpcgnn.schedules.full_halo import ApproximateInTraining, FullHalo, make_wire
from hpcgnn.schedules.sar import full_halo
from hpcgnn.traits import ScheduleTraits

log = logging.getLogger("hpcgnn")


@dataclass(frozen=True, kw_only=True)
class StaleConfig(ScheduleConfig):
    """The options of `stale`."""

    stale_epochs: int = option(
        1,
        "stale: age of remote rows and gradients in epochs; 0: sar",
        details="New rows are exchanged in the background (docs/schedules.md).",
        least=0,
        schedules=("stale",),
    )


class StaleHalo(PushedHalo):
    """The halo of r epochs ago. delay: r, at least 1; wire: RowCodec; facts: HaloFacts."""

    name, has_state = "stale", True

    def __init__(
        self,
        local: LocalGraph,
        comm: Communicator,
        buffers: HaloBuffers,
        wire: RowCodec,
        facts: HaloFacts,
        delay: int,
    ) -> None:
        self._local, self._comm, self._buffers, self._wire, self._facts = local, comm, buffers, wire, facts
        self._delay = delay
        self.transposed = [transposed(block) for block in local.inward.halo]
        # One operator for each call in an epoch: calls come in the same order in every epoch, on all ranks.
        self._exchanges: list[StaleExchange] = []
        self._operators: list[tuple[Operator[Any], Any]] = []
        self._saved: dict[str, torch.Tensor] = {}
        self._calls, self._warned = 0, False

    def begin_epoch(self, epoch: int) -> None:
        """Called by all ranks before the forward pass of an epoch."""
        if self._exchanges and not self._warned:
            self._warn()
        self._wire.begin_epoch(epoch)
        self._calls = 0

    @property
    def kept_bytes(self) -> int:
        """Bytes of rows and edges that are kept for the delay, on this rank."""
        boxes = sum(box.kept_bytes for _, box in self._boxes())
        return boxes + sum(block.nbytes for block in self.transposed)

    def _boxes(self) -> Iterator[tuple[str, Mailbox]]:
        """The mailboxes, with the beginnings of their names in a checkpoint."""
        for number, exchange in enumerate(self._exchanges):
            for name, box in exchange.boxes.items():
                yield f"{number:04d}-{name}-", box

    def _make(self, description: Operator[Made]) -> Made:
        number, self._calls = self._calls, self._calls + 1
        if number == len(self._exchanges):
            inward = self._local.inward
            exchange = StaleExchange(inward.plan, self._buffers, self._comm, self._wire, self._delay)
            self._exchanges.append(exchange)
            for start, box in list(self._boxes())[-2:]:
                mine = [each for each in self._saved if each.startswith(start)]
                box.load_state({each.removeprefix(start): self._saved.pop(each) for each in mine})
            used = UsedRows(exchange, inward.own, inward.halo)
            push = PushedGradients(exchange, self._local.outward.own, self.transposed)
            site = PushContext(self._local, used, push, self._facts, old=True)
            self._operators.append((description, description.pushed(site)))
        known, operator = self._operators[number]
        assert known == description, "a model must call the same operators in the same order in every epoch"
        return operator

    def state(self) -> dict[str, torch.Tensor]:
        """{name: tensor}: rows that were sent and will be used. All ranks, for those under way are waited for."""
        return {start + part: tensor for start, box in self._boxes() for part, tensor in box.state().items()}

    def load_state(self, tensors: dict[str, torch.Tensor]) -> None:
        """Continue from the saved `state` of the same rank, before the first epoch."""
        self._saved = dict(tensors)

    def _warn(self) -> None:
        most = self._comm.allreduce_(torch.tensor([self.kept_bytes]), "control", "max")
        self._warned = True
        if most and not self._comm.rank:
            log.warning(
                "--schedule stale keeps %.1f MiB on the rank with the largest halo: %d epochs of the rows of all "
                "neighbours for every layer. It follows the size of the halo, and does not fall linearly with the "
                "number of ranks",
                int(most) / 2**20,
                self._delay + 1,
            )


def build_stale(
    local: LocalGraph, comm: Communicator, buffers: HaloBuffers, config: Config, random: Randomness
) -> Schedule:
    """Delayed halo, all-reduce at every step; no delay is `sar`. config: Config; random: Randomness."""
    options = cast(StaleConfig, config.schedule)
    sync = AllreduceEveryStep(comm)
    if options.stale_epochs == 0:
        return Schedule(full_halo(local, comm, buffers, config, random), sync)
    facts, wire = HaloFacts(local, comm), make_wire(options, local, random)
    exact = FullHalo(local, comm, buffers, facts=facts)
    training = StaleHalo(local, comm, buffers, wire, facts, options.stale_epochs)
    return Schedule(ApproximateInTraining(exact, training), sync)


SCHEDULE = ScheduleEntry(
    build_stale,
    ScheduleTraits(changing_input=True, partial_sums="always", narrows_rows=True),
    options=StaleConfig,
)
