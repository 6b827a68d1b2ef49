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
from dataclasses import dataclass
from typing import Any, cast

import torch

from hpcgnn.comm import Communicator
from hpcgnn.config import Config
from hpcgnn.declaring import option
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.exchange.stale import PushedGradients, StaleExchange, UsedRows
from hpcgnn.exchange.wire import Wire
from hpcgnn.graph.blocks import transposed
from hpcgnn.graph.local import LocalGraph
from hpcgnn.ops.draws import Randomness
from hpcgnn.ops.operators import Made, Operator
from hpcgnn.ops.site import Facts, PushedSite
from hpcgnn.options import ScheduleConfig
from hpcgnn.schedules.approximate import ApproximateInTraining
from hpcgnn.schedules.base import Schedule, ScheduleEntry
from hpcgnn.schedules.full_halo import FullHalo
from hpcgnn.schedules.pushed_halo import PushedHalo
from hpcgnn.schedules.rounding import make_wire
from hpcgnn.schedules.sar import full_halo
from hpcgnn.schedules.sync import AllreduceEveryStep
from hpcgnn.traits import ScheduleTraits

log = logging.getLogger("hpcgnn")


@dataclass(frozen=True, kw_only=True)
class StaleConfig(ScheduleConfig):
    """The options of `stale`."""

    stale_epochs: int = option(
        1,
        "stale: age of remote rows and gradients in epochs; 0: sar",
        details="New rows are exchanged in the background. Memory: the halo of all layers, for one epoch more than "
        "this.",
        least=0,
        schedules=("stale",),
    )


class StaleHalo(PushedHalo):
    """The halo of r epochs ago. delay: r, at least 1; wire: Wire; facts: Facts."""

    name, has_state = "stale", True

    def __init__(
        self,
        local: LocalGraph,
        comm: Communicator,
        buffers: HaloBuffers,
        wire: Wire,
        facts: Facts,
        delay: int,
    ) -> None:
        self._local, self._comm, self._buffers, self._wire, self._facts = local, comm, buffers, wire, facts
        self._delay = delay
        self.transposed = [transposed(block) for block in local.inward.halo]
        # One operator for each call in an epoch: calls come in the same order in every epoch, on all ranks.
        self._exchanges: list[StaleExchange] = []
        self._operators: list[tuple[Operator[Any], Any]] = []
        self._saved: dict[tuple[int, str], dict[str, torch.Tensor]] = {}
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
        boxes = [box for each in self._exchanges for box in (each.ahead, each.home)]
        return sum(box.kept_bytes for box in boxes) + sum(block.nbytes for block in self.transposed)

    def _make(self, description: Operator[Made]) -> Made:
        number, self._calls = self._calls, self._calls + 1
        if number == len(self._exchanges):
            exchange = StaleExchange(self._local.inward.plan, self._buffers, self._comm, self._wire, self._delay)
            for name, box in (("ahead", exchange.ahead), ("home", exchange.home)):
                box.load_state(self._saved.pop((number, name), {}))
            used = UsedRows(exchange, self._local.inward.own, self._local.inward.halo)
            push = PushedGradients(exchange, self._local.outward.own, self.transposed)
            site = PushedSite(self._local, used, push, self._facts, old=True)
            self._exchanges.append(exchange)
            self._operators.append((description, description.pushed(site)))
        known, operator = self._operators[number]
        assert known == description, "a model must call the same operators in the same order in every epoch"
        return operator

    def state(self) -> dict[str, torch.Tensor]:
        """{name: tensor}: rows that were sent and will be used. All ranks, for those under way are waited for."""
        return {
            f"{number:04d}-{name}-{part}": tensor
            for number, each in enumerate(self._exchanges)
            for name, box in (("ahead", each.ahead), ("home", each.home))
            for part, tensor in box.state().items()
        }

    def load_state(self, tensors: dict[str, torch.Tensor]) -> None:
        """Continue from the saved `state` of the same rank, before the first epoch."""
        for key, tensor in tensors.items():
            number, name, part = key.split("-", 2)
            self._saved.setdefault((int(number), name), {})[part] = tensor

    def _warn(self) -> None:
        most = self._comm.allreduce_(torch.tensor([self.kept_bytes]), "control", "max")
        self._warned = True
        if not most or self._comm.rank:
            return
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
    facts, wire = Facts(local, comm), make_wire(options, local, random)
    exact = FullHalo(local, comm, buffers, facts=facts)
    training = StaleHalo(local, comm, buffers, wire, facts, options.stale_epochs)
    return Schedule(ApproximateInTraining(exact, training), sync)


def _halo_copies(config: Config) -> int:
    delay = cast(StaleConfig, config.schedule).stale_epochs
    return delay + 1 if delay else 0


SCHEDULE = ScheduleEntry(
    build_stale,
    ScheduleTraits(changing_input=True, partial_sums="always", sums_gradients=True, narrows_rows=True),
    options=StaleConfig,
    halo_copies=_halo_copies,
)
