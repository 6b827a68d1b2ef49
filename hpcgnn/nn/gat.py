"""Graph attention (Veličković et al., ICLR'18, eqs. 1-6): y_i = Σ_j α_ij W x_j + b.

α_ij is the softmax over the in-edges of i of LeakyReLU(a_dst·W x_i + a_src·W x_j), per head.
"""

import torch
from torch import nn

from hpcgnn.nn.graph import Graph
from hpcgnn.nn.linear import Bounded, Glorot, Linear, glorot_bound
from hpcgnn.nn.spec import PLAIN, ModelSpec
from hpcgnn.ops.additive_attention import AttentionShape
from hpcgnn.ops.dropout import EluDropout
from hpcgnn.ops.handover import Handover
from hpcgnn.ops.inputs import ConstantRows, Input
from hpcgnn.traits import LayerTraits


class GATConv(nn.Module):
    """H heads of `width` columns each, concatenated, or averaged. forward(graph, x (n_p, d_in)) -> (m, d_out).
    Collective.

    spec: ModelSpec, for slope and attention_dropout; layer: its number, which keys that dropout. A layer that
    is made by itself needs neither.
    """

    traits = LayerTraits(
        self_loops="add",
        neighbours="products",
        edges=("term",),
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

    def __init__(
        self, d_in: int, width: int, heads: int = 1, average: bool = False, spec: ModelSpec = PLAIN, layer: int = 0
    ) -> None:
        super().__init__()
        dtype = spec.dtype
        self.shape = AttentionShape(heads, width, spec.slope, average)
        self.d_in, self.d_out = d_in, width if average else heads * width
        self.attention_dropout, self.layer = spec.attention_dropout, layer
        self.linear = Linear(d_in, heads * width, bias=False, dtype=dtype, start="glorot")
        self.att_src = nn.Parameter(torch.zeros(heads, width, dtype=dtype))
        self.att_dst = nn.Parameter(torch.zeros(heads, width, dtype=dtype))
        # The edge's term of its logits: a coefficient per head for its weight, or for its type (added self loops have
        # the last type).
        kinds = {"none": 0, "weight": 1, "type": spec.edge_types + 1}[spec.edge_term]
        self.terms = nn.Parameter(torch.zeros(kinds, heads, dtype=dtype)) if kinds else None
        self.bias: nn.Parameter | None = nn.Parameter(torch.zeros(self.d_out, dtype=dtype))

    def drop_bias(self) -> None:
        """See `Conv.drop_bias`."""
        self.bias = None

    def glorot(self) -> list[Glorot]:
        """The attention vectors, as maps from `width` columns to one."""
        return [(vector, self.shape.width, 1) for vector in (self.att_src, self.att_dst)]

    def as_pyg(self) -> list[Bounded]:
        """The attention vectors, as maps from `width` columns to all heads."""
        bound = glorot_bound(self.shape.heads, self.shape.width)
        return [(self.att_src, bound), (self.att_dst, bound)]

    def begin_as(self, weight: torch.Tensor, bias: torch.Tensor) -> None:
        """Let every head's rows be x W (of concatenated heads: its part of them), and b the bias. Attention stays as it
        is.
        """
        with torch.no_grad():
            self.linear.weight.copy_(weight.repeat(1, self.shape.heads if self.shape.average else 1))
            if self.bias is not None:
                self.bias.copy_(bias)

    def with_halves(self) -> torch.Tensor:
        """Return the joint weights (d_in, H × width + 2H) of z and of the logits' two halves.

        a·(x W) = x (W a), so the halves come out of the same product as z, as 2H more columns.
        """
        per_head = self.linear.weight.view(self.d_in, self.shape.heads, self.shape.width)
        halves = [(per_head * vector).sum(-1) for vector in (self.att_src, self.att_dst)]
        return torch.cat([self.linear.weight, *halves], 1)

    def forward(self, graph: Graph, x: Input | Handover) -> torch.Tensor | Handover:
        """Output (m, d_out), as a Handover if the layer `hands_over`. x: also a Handover; see
        ops/attention_layer.py.
        """
        weight = self.with_halves()
        rule = self.shape, self.layer, self.attention_dropout if self.training else 0.0, self.terms
        if isinstance(x, torch.Tensor | ConstantRows | Handover):
            return graph.attention_layer(x, weight, self.bias, *rule, hand_over=self.hands_over)
        y = graph.attend(x @ weight, *rule)
        return y if self.bias is None else y + self.bias
