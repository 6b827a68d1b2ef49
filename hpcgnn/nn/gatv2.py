"""GATv2 (Brody et al., ICLR'22, eq. 7): y_i = Σ_j α_ij W_src x_j + b.

α_ij = softmax_j a·LeakyReLU(W_src x_j + W_dst x_i + W_edge e_ij), with the last term if the graph has edge features.
Unlike GAT's, the score is not a sum of two halves. So the gradient fetches the rows again, and returns its sums. A halo
row costs F numbers forwards and 2F backwards (F = heads × width). Features of edges do not travel.
"""

from typing import Any

import torch
from torch import nn
from torch.nn.functional import leaky_relu

from hpcgnn.kernels import RowScores
from hpcgnn.nn.entry import ATTENTION, Heads, ModelEntry, attentive, with_residual
from hpcgnn.nn.graph import Graph
from hpcgnn.nn.linear import Linear
from hpcgnn.nn.spec import ModelSpec
from hpcgnn.ops.layer_input import Input
from hpcgnn.ops.product import products
from hpcgnn.traits import LayerTraits


class GATv2Conv(Heads):
    traits = LayerTraits(
        self_loops="add",
        neighbours="products",
        edges=("features",),
        codes=True,
        input="product",
    )

    def add_weights(self, spec: ModelSpec) -> None:
        d_in, wide, columns = self.d_in, self.heads * self.width, spec.edge_features
        self.source = Linear(d_in, wide, dtype=spec.dtype, start="glorot and bias")
        self.target = Linear(d_in, wide, dtype=spec.dtype, start="glorot and bias")
        self.edge = Linear(columns, wide, False, spec.dtype, start="glorot") if columns else None
        self.attention = nn.Parameter(torch.zeros(self.heads, self.width, dtype=spec.dtype))
        self.bias: nn.Parameter | None = nn.Parameter(torch.zeros(self.d_out, dtype=spec.dtype))

    @property
    def vectors(self) -> list[nn.Parameter]:
        return [self.attention]

    def message(
        self, source: torch.Tensor, target: torch.Tensor, edge: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(logits (E, H), values (E, F)) of edges."""
        total = source + target if self.edge is None or edge is None else source + target + self.edge(edge)
        # In its place where the sign is kept, and with it the gradient.
        score = leaky_relu(total, self.slope, inplace=True).unflatten(1, (self.heads, self.width))
        return (score * self.attention).sum(-1), source

    def forward(self, graph: Graph, x: Input) -> torch.Tensor:
        edge, weight = (None, None) if self.edge is None else (graph.edge_features, self.edge.weight)
        source, target = products(x, self.source.map, self.target.map)
        y = graph.propagate(
            self.message,
            "softmax",
            x_src=source,
            x_dst=target,
            edge=edge,
            dropout=self.p,
            layer=self.layer,
            scores=RowScores(self.heads, self.attention, self.slope, weight=weight, edge=edge),
        )
        return self.joined(y) if self.bias is None else self.joined(y) + self.bias


def _layer(spec: ModelSpec) -> Any:
    return with_residual(GATv2Conv) if spec.options.linear_residual else GATv2Conv


MODEL = ModelEntry(_layer, (*ATTENTION, "linear_residual"), attentive)
