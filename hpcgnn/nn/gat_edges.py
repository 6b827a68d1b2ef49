"""Graph attention with edge features: a_e·(W_e e_ij) is added to the logits of gat.py before LeakyReLU (as by PyG's
GATConv with edge_dim).

The product of a_e and W_e is one map from the features to a number for each head; this map is learned here. The fused
operator computes gradients where edges begin, and would have to hold the features of out-edges too. The general
operator computes them where edges end. A halo row costs F + H numbers forwards and 2(F + H) backwards, and features of
edges do not travel.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.nn.functional import elu, leaky_relu

from hpcgnn.errors import GraphError
from hpcgnn.nn.entry import ATTENTION, ELU_IN_PLACE, ModelEntry, attentive, with_residual
from hpcgnn.nn.gat import GATConv
from hpcgnn.nn.graph import Graph
from hpcgnn.nn.model import Model
from hpcgnn.nn.spec import PLAIN, ModelSpec
from hpcgnn.ops.handover import Handover
from hpcgnn.ops.inputs import Input


class EdgeGATConv(GATConv):
    """A GATConv on a graph with spec.edge_features columns."""

    traits = replace(
        GATConv.traits,
        edges=("features",),
        prunable=False,
        activation=None,
    )

    def __init__(
        self, d_in: int, width: int, heads: int = 1, average: bool = False, spec: ModelSpec = PLAIN, layer: int = 0
    ) -> None:
        super().__init__(d_in, width, heads, average, spec, layer)
        # Zero: it begins as attention without edge features.
        self.terms = nn.Parameter(torch.zeros(spec.edge_features, heads, dtype=spec.dtype))

    def message(
        self, source: torch.Tensor, target: torch.Tensor, edge: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(logits (E, H), values (E, F)) of edges."""
        assert self.terms is not None
        value, half = source.split([source.shape[1] - self.shape.heads, self.shape.heads], 1)
        return leaky_relu(half + target + edge @ self.terms, self.shape.slope), value

    def forward(self, graph: Graph, x: Input | Handover) -> torch.Tensor:
        assert not isinstance(x, Handover), "this layer takes no activation over"
        source, target = (x @ self.with_halves()).split(
            [self.linear.weight.shape[1] + self.shape.heads, self.shape.heads], 1
        )
        p = self.attention_dropout if self.training else 0.0
        y = graph.propagate(
            self.message,
            "softmax",
            x_src=source,
            x_dst=target,
            edge=graph.edge_features,
            dropout=p,
            layer=self.layer,
        )
        y = y.unflatten(1, (self.shape.heads, self.shape.width)).mean(1) if self.shape.average else y
        return y if self.bias is None else y + self.bias


def _layer(spec: ModelSpec) -> Any:
    layer = EdgeGATConv if spec.edge_features and spec.edge_term == "none" else GATConv
    return with_residual(layer) if spec.linear_residual else layer


def _build(spec: ModelSpec) -> Model:
    missing = {"weight": not spec.weighted, "type": spec.edge_types == 0}.get(spec.edge_term, False)
    if missing:
        raise GraphError(
            f"--edge-term {spec.edge_term} needs edges with {spec.edge_term}s, and this graph has none; import it "
            "with them, or leave the option out"
        )
    # In place, but where the gradient of the fused layer needs its output.
    activation = ELU_IN_PLACE if spec.edge_features else elu
    return attentive(_layer(spec), activation)(spec)


MODEL = ModelEntry(
    _build, _layer, (*ATTENTION, "negative_slope", "edge_term", "linear_residual"), weights_remedy="--edge-term weight"
)
