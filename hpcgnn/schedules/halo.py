"""Halo policies: what `aggregate` does about remote rows."""

from hpcgnn.graph.norms import scales
from hpcgnn.graph.stream import Stream
from hpcgnn.ops.linear import LinearAggregation


class FullHalo:
    """Every remote row in every layer of every step: exact full-batch training.

    local: LocalGraph; buffers: HaloBuffers, the rank's only communication memory.
    """

    def __init__(self, local, comm, buffers):
        self._local = local
        self._inward = Stream(local.inward.own, local.inward.halo, local.inward.plan, buffers, comm)
        self._outward = (
            self._inward
            if local.outward is local.inward
            else Stream(local.outward.own, local.outward.halo, local.outward.plan, buffers, comm)
        )
        self._operators = {}

    def begin_epoch(self, epoch):
        """Nothing changes from epoch to epoch."""

    def aggregate(self, x, norm):
        """Own rows (n_p, F) -> (n_p, F): R A S x with the normalisation `norm`. Collective."""
        key = norm, x.dtype
        if key not in self._operators:
            self._operators[key] = LinearAggregation(self._inward, self._outward, *scales(self._local, norm, x.dtype))
        return self._operators[key](x)
