"""Graph transformer (Shi et al., IJCAI'21, eqs. 3 and 4): y_i = Σ_j softmax_j(q_i·k_j / √width) v_j + W x_i + b, per
head.

If the graph has edge features, W_e e_ij is added to k_j and to v_j (its eq. 3 with edges). A halo row carries [k | v],
so that it costs 2F numbers forwards. The gradient needs 4F: it fetches them again, and returns their gradients (F =
heads × width). Features of edges do not travel.
"""

import math
from typing import cast

import torch

from hpcgnn.kernels import RowScores
from hpcgnn.nn.entry import ATTENTION, Heads, ModelEntry, attentive
from hpcgnn.nn.graph import Graph
from hpcgnn.nn.linear import Linear
from hpcgnn.nn.spec import ModelSpec
from hpcgnn.ops.layer_input import Input
from hpcgnn.ops.product import products
from hpcgnn.traits import LayerTraits


class TransformerConv(Heads):
    traits = LayerTraits(neighbours="products", edges=("features",), codes=True, input="product")
    last_biases = ("own", "key_value")  # softmaxes pass on the values' bias, and the keys' cancels in them

    def add_weights(self, spec: ModelSpec) -> None:
        d_in, wide, columns = self.d_in, self.heads * self.width, spec.edge_features
        self.query = Linear(d_in, wide, dtype=spec.dtype)
        self.key_value = Linear(d_in, 2 * wide, dtype=spec.dtype)
        self.edge = Linear(columns, wide, False, spec.dtype) if columns else None
        self.own = Linear(d_in, self.d_out, dtype=spec.dtype)

    def message(
        self, key_value: torch.Tensor, query: torch.Tensor, edge: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(logits (E, H), values (E, F)) of edges, from queries / √width."""
        key, value = key_value.chunk(2, 1)
        if self.edge is not None and edge is not None:
            more = self.edge(edge)
            key, value = key + more, value + more
        return (key * query).unflatten(1, (self.heads, self.width)).sum(-1), value

    def forward(self, graph: Graph, x: Input) -> torch.Tensor:
        edge, weight = (None, None) if self.edge is None else (graph.edge_features, self.edge.weight)
        query_weight, query_bias = (cast(torch.Tensor, each) / math.sqrt(self.width) for each in self.query.map)
        own, key_value, query = products(x, self.own.map, self.key_value.map, (query_weight, query_bias))
        y = graph.propagate(
            self.message,
            "softmax",
            x_src=key_value,
            x_dst=query,
            edge=edge,
            dropout=self.p,
            layer=self.layer,
            scores=RowScores(self.heads, weight=weight, edge=edge),
        )
        return own.add_(self.joined(y))


MODEL = ModelEntry(lambda spec: TransformerConv, ATTENTION, attentive)
