"""The operators that a layer can ask its halo policy for: one description each, and how it is made from a rank's
streams.

A new operator is a new file in this folder, and a description here. Policies make it without knowing it.
"""

from dataclasses import dataclass
from typing import Generic, TypeVar

import torch

from hpcgnn.graph.local import scales
from hpcgnn.ops.additive_attention import AdditiveAttention, AttentionShape, PushedAttention
from hpcgnn.ops.linear_aggregation import LinearAggregation, LinearOperator, PushedAggregation
from hpcgnn.ops.operator_context import OperatorContext, PushContext
from hpcgnn.ops.propagate import Propagation
from hpcgnn.ops.relational import RelationalAggregation
from hpcgnn.ops.row_tiles import sum_type

Made = TypeVar("Made")


class Operator(Generic[Made]):
    """The description of an operator; equal ones are one operator. Subclasses are frozen dataclasses.

    models: the models that need it, in words, for the errors of policies without it. pushes: whether `pushed` gives
    one. messages: whether it sends any along the edges, and is not the loss of these.
    """

    models = ""
    pushes = False
    messages = True

    def exact(self, site: OperatorContext) -> Made:
        """The operator on all remote rows. By all ranks together."""
        raise NotImplementedError

    def pushed(self, site: PushContext) -> Made:
        """The operator on some or old remote rows, with gradients that are pushed to their owners. By all ranks
        together.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class WeightedSum(Operator[LinearOperator]):
    """R A S. norm: a key of graph/local.py; dtype: of the rows."""

    norm: str
    dtype: torch.dtype
    pushes = True

    def exact(self, site: OperatorContext) -> LinearAggregation:
        row_scale, source_scale = scales(site.local, self.norm, sum_type(self.dtype))
        local = site.local
        return LinearAggregation(site.inward, site.outward, row_scale, source_scale, local.outputs, local.features)

    def pushed(self, site: PushContext) -> PushedAggregation:
        return PushedAggregation(site, *scales(site.local, self.norm, self.dtype))


@dataclass(frozen=True)
class Attention(Operator[AdditiveAttention]):
    """Additive attention."""

    shape: AttentionShape
    pushes = True

    def exact(self, site: OperatorContext) -> AdditiveAttention:
        local, ids = site.local, (site.facts.inward_ids(), site.facts.outward_ids())
        return AdditiveAttention(site.inward, site.outward, local.original_id, *ids, local.outputs)

    def pushed(self, site: PushContext) -> PushedAttention:
        return PushedAttention(site)


@dataclass(frozen=True)
class InDegree(Operator[torch.Tensor]):
    """The number of in-edges of the own nodes that are in use: float64 (n_p,)."""

    pushes = True

    def exact(self, site: OperatorContext | PushContext) -> torch.Tensor:
        return site.local.in_degree.double()

    pushed = exact


@dataclass(frozen=True)
class Relational(Operator[RelationalAggregation]):
    """Relational aggregation. relations: their number; dtype: of the rows."""

    relations: int
    dtype: torch.dtype
    models = "with relations (rgcn)"

    def exact(self, site: OperatorContext) -> RelationalAggregation:
        local, (inward, outward) = site.local, site.facts.relation_weights(self.relations, self.dtype)
        in_edges, out_edges = local.inward.edges, local.outward.edges
        assert in_edges is not None and out_edges is not None, "models with relations have their edges kept"
        return RelationalAggregation((site.inward, in_edges, inward), (site.outward, out_edges, outward))


@dataclass(frozen=True)
class Messages(Operator[Propagation]):
    """Any message function."""

    models = (
        "with a message function of their own (gatv2, transformer, pna, gine, rgat, plugins; gat where edges have "
        "features, unless --edge-features none)"
    )

    def exact(self, site: OperatorContext) -> Propagation:
        return Propagation(site.inward, site.local.original_id, site.facts.inward_ids())
