"""Graph isomorphism network (Xu et al., ICLR'19, eq. 4.1): y = MLP((1 + ε) x + Σ in-neighbours), ε learned.

The MLP has two layers. The first is linear and commutes with the sum, so the narrower side can be sent here as well.

With edge features (`GINEConv`; Hu et al., ICLR'20, eq. A.1; as PyG's GINEConv):

y_i = MLP((1 + ε) x_i + Σ_j ReLU(x_j + W e_ij + b)),   ε learned

A halo row carries x, so that it costs F numbers forwards and 2F backwards; features of edges do not travel.
"""

import torch
from torch import nn

from hpcgnn.errors import GraphError
from hpcgnn.nn.conv import Conv, Weights
from hpcgnn.nn.entry import LINEAR, STACK, ModelEntry
from hpcgnn.nn.graph import Graph
from hpcgnn.nn.linear import Linear
from hpcgnn.ops.edge_rules import RowMessages
from hpcgnn.ops.layer_input import Input
from hpcgnn.ops.product import product
from hpcgnn.traits import LayerTraits


class GINConv(Conv):
    last_biases = ("second",)
    traits = LayerTraits(
        neighbours="sums",
        prunable=True,
        input="product",
        codes=True,
    )

    def __init__(self, d_in: int, d_out: int, dtype: torch.dtype | None = None) -> None:
        super().__init__(d_in, d_out)
        self.first = Linear(d_in, d_out, dtype=dtype)
        self.second = Linear(d_out, d_out, dtype=dtype)
        self.eps = nn.Parameter(torch.zeros((), dtype=dtype))

    def weights(self) -> Weights:
        """(a + (1 + ε) x) W is a W + x (1 + ε) W."""
        weight = self.first.weight
        return weight, (1 + self.eps) * weight, self.first.bias

    def combine(self, aggregate: torch.Tensor, x: torch.Tensor | None) -> torch.Tensor:
        assert x is not None, "this convolution uses its input"
        return self.finish(self.first(aggregate + (1 + self.eps) * x))

    def finish(self, y: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu_(y))

    def transform_first(self, graph: Graph, x: Input) -> torch.Tensor:
        z = product(x, self.first.weight)
        assert self.first.bias is not None, "nobody drops it"
        return self.finish(graph.aggregate(z, self.norm) + (1 + self.eps) * graph.own(z) + self.first.bias)


MODEL = ModelEntry(lambda spec: GINConv, LINEAR)


class GINEConv(nn.Module):
    """forward(graph, x (n_p, d_in)) -> (n_p, d_out), of a graph with `edge_features` columns. Collective."""

    traits = LayerTraits(edges=("features",))
    last_biases = ("second",)

    def __init__(self, d_in: int, d_out: int, edge_features: int, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        if edge_features == 0:
            raise GraphError(
                "gine needs edges with features, and there are none; import the graph with them (edges.features), "
                "train with --edge-features file, or use gin"
            )
        self.edge = Linear(edge_features, d_in, dtype=dtype)
        self.first = Linear(d_in, d_out, dtype=dtype)
        self.second = Linear(d_out, d_out, dtype=dtype)
        self.eps = nn.Parameter(torch.zeros((), dtype=dtype))

    def message(self, source: torch.Tensor, edge: torch.Tensor) -> torch.Tensor:
        """(E, d_in) of edges."""
        return torch.relu(source + self.edge(edge))

    def forward(self, graph: Graph, x: torch.Tensor) -> torch.Tensor:
        how = RowMessages(self.edge.weight, self.edge.bias, relu=True)
        total = graph.propagate(self.message, "sum", x_src=x, edge=graph.edge_features, scores=how)
        return self.second(torch.relu(self.first(total + (1 + self.eps) * x)))


GINE = ModelEntry(lambda spec: GINEConv, STACK)
