"""Halo policies: what the verbs of a layer do about remote rows."""

from dataclasses import replace
from functools import cached_property

from hpcgnn import kernels
from hpcgnn.errors import ConfigError
from hpcgnn.exchange.compact import CompactStream
from hpcgnn.exchange.plan import gather_halo
from hpcgnn.exchange.stream import Stream
from hpcgnn.exchange.wire import Wire
from hpcgnn.graph.norms import scales
from hpcgnn.graph.relations import relation_weights
from hpcgnn.ops.additive_attention import AdditiveAttention
from hpcgnn.ops.attention_layer import attention_layer
from hpcgnn.ops.convolution import convolve
from hpcgnn.ops.largest_neighbour import LargestNeighbour
from hpcgnn.ops.linear_aggregation import LinearAggregation
from hpcgnn.ops.propagate import Propagation
from hpcgnn.ops.relational import RelationalAggregation
from hpcgnn.ops.row_tiles import sum_type
from hpcgnn.schedules.base import Stateless


class Facts:
    """What the policies of a rank find out once and share: original ids of the halo, weights of typed edges. Each is
    asked for by all ranks together.
    """

    def __init__(self, local, comm):
        self._local, self._comm, self._weights = local, comm, {}

    @cached_property
    def inward_ids(self):
        """int64, in the order of the halo."""
        return gather_halo(self._local.inward.plan, self._local.original_id, self._comm)

    @cached_property
    def outward_ids(self):
        """Likewise, of the other direction."""
        if self._local.outward is self._local.inward:
            return self.inward_ids
        return gather_halo(self._local.outward.plan, self._local.output_id, self._comm)

    def relation_weights(self, kinds, dtype):
        """See graph/relations.py."""
        if dtype not in self._weights:
            self._weights[dtype] = relation_weights(self._local, kinds, self._comm, dtype)
        return self._weights[dtype]


class FullHalo(Stateless):
    """Every remote row in every layer of every step: exact full-batch training, if `wire` sends rows as they are.

    local: LocalGraph; buffers: HaloBuffers, the rank's only communication memory; wire: Wire; facts: Facts, if another
    policy has them. The operators are made when a model first asks for them, by all ranks together.
    """

    def __init__(self, local, comm, buffers, wire=None, facts=None):
        self._local, self._comm, self._wire, self._facts = local, comm, wire or Wire(), facts or Facts(local, comm)
        self._buffers = buffers
        self._inward = Stream(local.inward.own, local.inward.halo, local.inward.plan, buffers, comm, self._wire)
        self._outward = (
            self._inward
            if local.outward is local.inward
            else Stream(local.outward.own, local.outward.halo, local.outward.plan, buffers, comm, self._wire)
        )
        self._linear, self._relational = {}, {}

    def inward_of(self, x):
        """The Stream along the in-edges for rows x (n_p, F): if they are the features, it may send their entries
        alone.
        """
        compact = self._local.compact
        if compact is None or x is not self._local.features or self._wire.type is not None:
            return self._inward
        return CompactStream(self._inward, compact)

    def restricted(self, local):
        """The same policy for what a layer computes of the graph, a LocalGraph with `outputs`."""
        return FullHalo(local, self._comm, self._buffers, self._wire)

    def begin_epoch(self, epoch):
        """Nothing changes from epoch to epoch but the rounding of rows."""
        self._wire.begin_epoch()

    @property
    def overflowed(self):
        """Whether a number was too large for the way, on this rank."""
        return self._wire.overflowed

    def aggregate(self, x, norm):
        """Own rows (n_p, F) -> (m, F): R A S x with the normalisation `norm`. Collective."""
        operator, stream = self._aggregation(norm, x.dtype), self.inward_of(x)
        return operator(x) if stream is self._inward else operator.multiply(x, stream=stream)

    def convolve(self, x, neighbour, own, bias, norm, activation, kept=None):
        """aggregate(x) W_n + x W_s + b as one operator; see ops/convolution.py. Collective."""
        return convolve(x, neighbour, own, bias, self._aggregation(norm, x.dtype), activation, kept)

    def _aggregation(self, norm, dtype):
        if (norm, dtype) not in self._linear:
            self._linear[norm, dtype] = LinearAggregation(
                self._inward, self._outward, *scales(self._local, norm, sum_type(dtype)), self._local.outputs
            )
        return self._linear[norm, dtype]

    def attend(self, projected, shape, key, p, terms=None):
        """Additive attention from [z | a_src | a_dst] (n_p, F + 2H); see ops/additive_attention.py. Collective."""
        return self._attention(projected, shape, key, p, terms)

    def attention_layer(self, x, weight, bias, terms, shape, key, p, activation):
        """attend(activation(x) W) + bias as one operator; see ops/attention_layer.py. Collective."""
        return attention_layer(x, weight, bias, terms, self._attention, shape, key, p, activation)

    def largest(self, x):
        """The largest of the in-neighbours' rows (n_p, F), column by column; see ops/largest_neighbour.py. Collective.

        Raises ConfigError for int8, whose scale differs from row to row, so that x_j = y_i cannot be asked.
        """
        if self._wire.name == "int8":
            raise ConfigError(
                "--halo-dtype int8 cannot be used where the largest of the neighbours is taken (sage with "
                "--aggregator max or pool): expected fp32, bf16 or fp16"
            )
        return LargestNeighbour(self._inward, self._outward)(x)

    def relate(self, x, coefficients, bases):
        """Relational aggregation of own rows x (n_p, d_in); see ops/relational.py. Collective."""
        if x.dtype not in self._relational:
            local, weights = self._local, self._facts.relation_weights(len(coefficients), x.dtype)
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

    @property
    def _inward_ids(self):
        return self._facts.inward_ids

    @cached_property
    def _attention(self):
        local, facts = self._local, self._facts
        edges = local.inward.edges, local.outward.edges
        return AdditiveAttention(
            self._inward, self._outward, local.original_id, facts.inward_ids, facts.outward_ids, edges, local.outputs
        )

    @cached_property
    def _propagation(self):
        return Propagation(self._inward, self._local.original_id, self._inward_ids)
