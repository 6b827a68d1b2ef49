"""Graph attention (Veličković et al., ICLR'18, eqs. 1-6): y_i = Σ_j α_ij W x_j + b.

α_ij is the softmax over the in-edges of i of LeakyReLU(a_dst·W x_i + a_src·W x_j), per head.

With edge features, a_e·(W_e e_ij) is added to the logits before LeakyReLU (as by PyG's GATConv with edge_dim). The
product of a_e and W_e is one map from the features to a number for each head; this map is learned here. The fused
operator computes gradients where edges begin, and would have to hold the features of out-edges too. The general
operator computes them where edges end. A halo row costs F + H numbers forwards and 2(F + H) backwards, and features of
edges do not travel.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.nn.functional import leaky_relu

from hpcgnn.nn.entry import ATTENTION, Heads, ModelEntry, attentive, with_residual
from hpcgnn.nn.graph import Graph
from hpcgnn.nn.linear import Linear
from hpcgnn.nn.spec import ModelSpec
from hpcgnn.ops.additive_attention import Attending, AttentionShape
from hpcgnn.ops.draws import EluDropout
from hpcgnn.ops.handover import Handover
from hpcgnn.ops.layer_input import ConstantRows, Input
from hpcgnn.ops.product import product
from hpcgnn.traits import LayerTraits


class GATConv(Heads):
    traits = LayerTraits(
        self_loops="add",
        neighbours="products",
        edges=("features",),
        prunable=True,
        input="tiles",
        activation=EluDropout,
        codes=True,
    )
    # The share of the rows below which pruning pays: with 0.54 of 169,343 nodes for training one rank takes a tenth
    # less processor time and 2 % less memory, and 8 ranks 1 % more memory. (SAGE: a twentieth less time, and 3 % and
    # 6 % more memory.)
    worthwhile = 0.6
    hands_over = False  # set by the model for layers whose output the next layer takes over

    def add_weights(self, spec: ModelSpec) -> None:
        dtype, heads, width = spec.dtype, self.heads, self.width
        self.shape = AttentionShape(heads, width, self.slope, self.average)
        self.linear = Linear(self.d_in, heads * width, bias=False, dtype=dtype, start="glorot")
        self.att_src = nn.Parameter(torch.zeros(heads, width, dtype=dtype))
        self.att_dst = nn.Parameter(torch.zeros(heads, width, dtype=dtype))
        self.bias: nn.Parameter | None = nn.Parameter(torch.zeros(self.d_out, dtype=dtype))
        # (H × width, 1, H): each half of a head is of the columns of that head alone. A buffer would be averaged.
        self._own_columns = torch.eye(heads, dtype=dtype).repeat_interleave(width, 0).unsqueeze(1)

    @property
    def vectors(self) -> list[nn.Parameter]:
        return [self.att_src, self.att_dst]

    def with_halves(self) -> torch.Tensor:
        """Return the joint weights (d_in, H × width + 2H) of z and of the logits' two halves.

        a·(x W) = x (W a), so the halves come out of the same product as z, as 2H more columns.
        """
        vectors = torch.stack([self.att_src, self.att_dst], 2).view(-1, 2, 1)
        halves = (vectors * self._own_columns.to(vectors)).flatten(1)
        return torch.cat([self.linear.weight, product(self.linear.weight, halves)], 1)

    def forward(self, graph: Graph, x: Input | Handover) -> torch.Tensor | Handover:
        """Output (m, d_out), as a Handover if the layer `hands_over`. x: also a Handover; see
        ops/attention_layer.py.
        """
        weight = self.with_halves()
        how = Attending(self.shape, p=self.p, bias=self.bias)
        if isinstance(x, torch.Tensor | ConstantRows | Handover):
            return graph.attention_layer(x, weight, how, self.layer, hand_over=self.hands_over)
        y = graph.attention_layer(product(x, weight), None, replace(how, bias=None), self.layer)
        return y if self.bias is None else y + self.bias


class EdgeGATConv(GATConv):
    """A GATConv on a graph with spec.edge_features columns."""

    traits = replace(
        GATConv.traits,
        prunable=False,
        activation=None,
    )

    def add_weights(self, spec: ModelSpec) -> None:
        super().add_weights(spec)
        # Zero: it begins as attention without edge features.
        self.terms = nn.Parameter(torch.zeros(spec.edge_features, self.heads, dtype=spec.dtype))

    def message(
        self, source: torch.Tensor, target: torch.Tensor, edge: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(logits (E, H), values (E, F)) of edges."""
        value, half = source.split([source.shape[1] - self.shape.heads, self.shape.heads], 1)
        return leaky_relu(half + target + edge @ self.terms, self.shape.slope), value

    def forward(self, graph: Graph, x: Input | Handover) -> torch.Tensor:
        assert not isinstance(x, Handover), "this layer takes no activation over"
        source, target = product(x, self.with_halves()).split(
            [self.linear.weight.shape[1] + self.shape.heads, self.shape.heads], 1
        )
        given = {"x_src": source, "x_dst": target, "edge": graph.edge_features}
        y = self.joined(graph.propagate(self.message, "softmax", **given, dropout=self.p, layer=self.layer))
        return y if self.bias is None else y + self.bias


def _layer(spec: ModelSpec) -> Any:
    layer = EdgeGATConv if spec.edge_features else GATConv
    return with_residual(layer) if spec.options.linear_residual else layer


MODEL = ModelEntry(_layer, (*ATTENTION, "linear_residual"), attentive)
