"""The halo policy of exact training: every remote row, in every layer of every step."""

from typing import Any, cast

import torch

from hpcgnn.comm import Communicator
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.exchange.compact import CompactStream
from hpcgnn.exchange.node_stream import NodeStream
from hpcgnn.exchange.stream import Stream
from hpcgnn.exchange.wire import Wire
from hpcgnn.graph.local import Adjacency, LocalGraph
from hpcgnn.ops.operators import Made, Operator
from hpcgnn.ops.site import Facts, Site
from hpcgnn.schedules.base import Stateless


class FullHalo(Stateless):
    """Every remote row in every layer of every step: exact full-batch training, if `wire` sends rows as they are.

    local: LocalGraph; buffers: HaloBuffers, the rank's only communication memory; wire: Wire; facts: Facts, if another
    policy has them. inward, outward: Streams along in-edges and out-edges. The operators are made when a model first
    asks for them, by all ranks together.
    """

    def __init__(
        self,
        local: LocalGraph,
        comm: Communicator,
        buffers: HaloBuffers,
        wire: Wire | None = None,
        facts: Facts | None = None,
    ) -> None:
        self._local, self._comm, self._buffers, self._wire = local, comm, buffers, wire or Wire()
        self.inward = self._stream(local.inward)
        self.outward = self.inward if local.outward is local.inward else self._stream(local.outward)
        constant, along = None, local.feature_rows
        if along is None and local.inward.plan.sending.sums is None:
            along = local.inward
        if local.compact is not None and self._wire.kind is None and along is not None:
            dense = cast(torch.Tensor, local.features)  # no others are counted for that
            rows = self.inward if along is local.inward else self._stream(along)
            constant = dense, CompactStream(rows, local.compact)
        self._site = Site(local, comm, self.inward, self.outward, facts or Facts(local, comm), constant)
        self._operators: dict[Operator[Any], Any] = {}

    def _stream(self, adjacency: Adjacency) -> Stream:
        what = adjacency.own, adjacency.halo, adjacency.plan, self._buffers, self._comm, self._wire
        return Stream(*what) if adjacency.near is None else NodeStream(*what, adjacency.near)

    def operator(self, description: Operator[Made]) -> Made:
        """See HaloPolicy."""
        if description not in self._operators:
            self._operators[description] = description.exact(self._site)
        return self._operators[description]

    def inward_of(self, x: torch.Tensor) -> Stream | CompactStream:
        """The Stream along the in-edges for rows x (n_p, F): if they are the features, it may send their entries
        alone.
        """
        constant = self._site.constant
        return constant[1] if constant is not None and x is constant[0] else self.inward

    def restricted(self, local: LocalGraph) -> "FullHalo":
        """Return the same policy for a layer's part of the graph, a LocalGraph with `outputs`."""
        return FullHalo(local, self._comm, self._buffers, self._wire)

    def begin_epoch(self, epoch: int) -> None:
        """Nothing changes from epoch to epoch but how rows are narrowed."""
        self._wire.begin_epoch(epoch)
