"""Halo policies: what the verbs of a layer do about remote rows."""

from dataclasses import replace
from functools import cached_property

from hpcgnn import kernels
from hpcgnn.graph.halo import gather_halo
from hpcgnn.graph.norms import scales
from hpcgnn.graph.relations import relation_weights
from hpcgnn.graph.stream import Stream
from hpcgnn.ops.convolution import convolve
from hpcgnn.ops.attention import AdditiveAttention
from hpcgnn.ops.attention_layer import attention_layer
from hpcgnn.ops.extreme import LargestNeighbour
from hpcgnn.ops.linear import LinearAggregation
from hpcgnn.ops.propagate import Propagation
from hpcgnn.ops.relational import RelationalAggregation


class FullHalo:
    """Every remote row in every layer of every step: exact full-batch training.

    local: LocalGraph; buffers: HaloBuffers, the rank's only communication memory. The operators are made when a model first
    asks for them, by all ranks together.
    """

    def __init__(self, local, comm, buffers):
        self._local, self._comm = local, comm
        self._inward = Stream(local.inward.own, local.inward.halo, local.inward.plan, buffers, comm)
        self._outward = (
            self._inward
            if local.outward is local.inward
            else Stream(local.outward.own, local.outward.halo, local.outward.plan, buffers, comm)
        )
        self._linear, self._relational = {}, {}

    @property
    def inward(self):
        """The Stream along the in-edges."""
        return self._inward

    def begin_epoch(self, epoch):
        """Nothing changes from epoch to epoch."""

    def aggregate(self, x, norm):
        """Own rows (n_p, F) -> (n_p, F): R A S x with the normalisation `norm`. Collective."""
        return self._aggregation(norm, x.dtype)(x)

    def convolve(self, x, neighbour, own, bias, norm, activation):
        """aggregate(x) W_n + x W_s + b as one operator; see ops/convolution.py. Collective."""
        return convolve(x, neighbour, own, bias, self._aggregation(norm, x.dtype), activation)

    def _aggregation(self, norm, dtype):
        if (norm, dtype) not in self._linear:
            self._linear[norm, dtype] = LinearAggregation(
                self._inward, self._outward, *scales(self._local, norm, dtype)
            )
        return self._linear[norm, dtype]

    def attend(self, projected, shape, key, p, terms=None):
        """Additive attention from [z | a_src | a_dst] (n_p, F + 2H); see ops/attention.py. Collective."""
        return self._attention(projected, shape, key, p, terms)

    def attention_layer(self, x, weight, bias, terms, shape, key, p, activation):
        """attend(activation(x) W) + bias as one operator; see ops/attention_layer.py. Collective."""
        return attention_layer(x, weight, bias, terms, self._attention, shape, key, p, activation)

    def largest(self, x):
        """The largest of the in-neighbours' rows (n_p, F), column by column; see ops/extreme.py. Collective."""
        return LargestNeighbour(self._inward, self._outward)(x)

    def relate(self, x, coefficients, bases):
        """Relational aggregation of own rows x (n_p, d_in); see ops/relational.py. Collective."""
        if x.dtype not in self._relational:
            local, kinds = self._local, len(coefficients)
            weights = relation_weights(local, kinds, self._comm, x.dtype)
            self._relational[x.dtype] = RelationalAggregation(
                (self._inward, local.inward.edges, weights[0]), (self._outward, local.outward.edges, weights[1])
            )
        return self._relational[x.dtype](x, coefficients, bases)

    def propagate(self, rule, x_src, x_dst, edge):
        """Any message function; see ops/propagate.py. Collective."""
        apart = replace(
            rule, seed=kernels.stream_key(rule.seed, self._comm.rank)
        )  # ranks must not draw the same numbers
        return self._propagation(apart, x_src, x_dst, edge)

    @cached_property
    def _inward_ids(self):
        return gather_halo(self._local.inward.plan, self._local.original_id, self._comm)

    @cached_property
    def _attention(self):
        local, inward = self._local, self._inward_ids
        outward = (
            inward if local.outward is local.inward else gather_halo(local.outward.plan, local.original_id, self._comm)
        )
        edges = local.inward.edges, local.outward.edges
        return AdditiveAttention(self._inward, self._outward, local.original_id, inward, outward, edges)

    @cached_property
    def _propagation(self):
        return Propagation(self._inward, self._local.original_id, self._inward_ids)
