"""The halo policy of exact training: every remote row, in every layer of every step; and that of approximate training.

A step may be approximate; kept values and reported numbers never are. Narrowed, sampled or delayed rows, and dropped
edges, make noise that training averages out. A published number must not depend on it, nor on the number of ranks. The
same holds for an aggregate of the features that is exchanged once and kept. So without gradients (evaluation, kept
aggregates), ranks exchange all neighbours' rows unchanged.
"""

from typing import Any

import torch

from hpcgnn.comm.communicator import Communicator
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.exchange.row_codec import RowCodec
from hpcgnn.exchange.stream import Stream
from hpcgnn.graph.local import Adjacency, LocalGraph
from hpcgnn.ops.draws import Purpose, Randomness
from hpcgnn.ops.operator_context import HaloFacts, OperatorContext, trains
from hpcgnn.ops.operators import Made, Operator
from hpcgnn.options import ScheduleConfig
from hpcgnn.schedules.base import HaloPolicy


class FullHalo(HaloPolicy):
    """Every remote row in every layer of every step: exact full-batch training, if `wire` sends rows as they are.

    local: LocalGraph; buffers: HaloBuffers, the rank's only communication memory; wire: RowCodec; facts: HaloFacts, if
    another policy has them. inward, outward: Streams along in-edges and out-edges. The operators are made when a model
    first asks for them, by all ranks together.
    """

    def __init__(
        self,
        local: LocalGraph,
        comm: Communicator,
        buffers: HaloBuffers,
        wire: RowCodec | None = None,
        facts: HaloFacts | None = None,
    ) -> None:
        self._local, self._comm, self._buffers, self._wire = local, comm, buffers, wire or RowCodec()
        self.inward = self._stream(local.inward)
        self.outward = self.inward if local.outward is local.inward else self._stream(local.outward)
        self._site = OperatorContext(local, comm, self.inward, self.outward, facts or HaloFacts(local, comm))
        self._operators: dict[Operator[Any], Any] = {}

    def _stream(self, along: Adjacency) -> Stream:
        return Stream(along.own, along.halo, along.plan, self._buffers, self._comm, self._wire)

    def operator(self, description: Operator[Made]) -> Made:
        """See HaloPolicy."""
        made = self._operators.get(description)
        if made is None:
            made = self._operators[description] = description.exact(self._site)
        return made

    def restricted(self, local: LocalGraph) -> "FullHalo":
        """See HaloPolicy."""
        return FullHalo(local, self._comm, self._buffers, self._wire)

    def begin_epoch(self, epoch: int) -> None:
        """Nothing changes from epoch to epoch but how rows are narrowed."""
        self._wire.begin_epoch(epoch)


class ApproximateInTraining(HaloPolicy):
    """A halo policy of two: `training` gives the operators where gradients are wanted, `exact` elsewhere. All else is a
    matter of training alone.
    """

    def __init__(self, exact: HaloPolicy, training: HaloPolicy) -> None:
        self.exact, self.training, self.has_state = exact, training, training.has_state

    def operator(self, description: Operator[Made]) -> Made:
        """See HaloPolicy."""
        return (self.training if trains() else self.exact).operator(description)

    def begin_epoch(self, epoch: int) -> None:
        """See HaloPolicy; so are all that follow."""
        self.training.begin_epoch(epoch)

    @property
    def kept_bytes(self) -> int:
        return self.training.kept_bytes

    def state(self) -> dict[str, torch.Tensor]:
        return self.training.state()

    def load_state(self, tensors: dict[str, torch.Tensor]) -> None:
        self.training.load_state(tensors)

    def restricted(self, local: LocalGraph) -> HaloPolicy:
        return self.training.restricted(local)


def make_wire(options: ScheduleConfig, local: LocalGraph, random: Randomness) -> RowCodec:
    """The RowCodec that the options ask for. random: Randomness, whose epoch is the present one."""
    return RowCodec(options.halo_dtype, local.original_id, lambda number: random.key(Purpose.ROUNDING, number))
