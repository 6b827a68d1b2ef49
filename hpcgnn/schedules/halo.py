"""Halo policies: what `aggregate` does about remote rows."""

from hpcgnn.graph.halo import gather_halo
from hpcgnn.graph.norms import scales
from hpcgnn.graph.stream import Stream
from hpcgnn.ops.attention import AdditiveAttention
from hpcgnn.ops.linear import LinearAggregation


class FullHalo:
    """Every remote row in every layer of every step: exact full-batch training.

    local: LocalGraph; buffers: HaloBuffers, the rank's only communication memory.
    """

    def __init__(self, local, comm, buffers):
        self._local, self._comm = local, comm
        self._inward = Stream(local.inward.own, local.inward.halo, local.inward.plan, buffers, comm)
        self._outward = (
            self._inward
            if local.outward is local.inward
            else Stream(local.outward.own, local.outward.halo, local.outward.plan, buffers, comm)
        )
        self._operators = {}
        self._attention = None

    def begin_epoch(self, epoch):
        """Nothing changes from epoch to epoch."""

    def aggregate(self, x, norm):
        """Own rows (n_p, F) -> (n_p, F): R A S x with the normalisation `norm`. Collective."""
        key = norm, x.dtype
        if key not in self._operators:
            self._operators[key] = LinearAggregation(self._inward, self._outward, *scales(self._local, norm, x.dtype))
        return self._operators[key](x)

    def attend(self, projected, shape, key, p):
        """Additive attention from [z | a_src | a_dst] (n_p, F + 2H); see ops/attention.py. Collective."""
        if self._attention is None:
            local = self._local
            inward_ids = gather_halo(local.inward.plan, local.original_id, self._comm)
            outward_ids = inward_ids
            if local.outward is not local.inward:
                outward_ids = gather_halo(local.outward.plan, local.original_id, self._comm)
            self._attention = AdditiveAttention(self._inward, self._outward, local.original_id, inward_ids, outward_ids)
        return self._attention(projected, shape, key, p)
