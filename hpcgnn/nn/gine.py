"""Graph isomorphism network with edge features (Hu et al., ICLR'20, eq. A.1; as PyG's GINEConv):

y_i = MLP((1 + ε) x_i + Σ_j ReLU(x_j + W e_ij + b)),   ε learned

A halo row carries x, so that it costs F numbers forwards and 2F backwards; features of edges do not travel.
"""

from functools import partial

import torch
from torch import nn

from hpcgnn.errors import GraphError
from hpcgnn.kernels import RowMessages
from hpcgnn.nn.entry import STACK, ModelEntry, stacked
from hpcgnn.nn.graph import Graph
from hpcgnn.nn.linear import Linear
from hpcgnn.nn.model import Model
from hpcgnn.nn.spec import ModelSpec
from hpcgnn.traits import LayerTraits


class GINEConv(nn.Module):
    """forward(graph, x (n_p, d_in)) -> (n_p, d_out), of a graph with `edge_features` columns. Collective."""

    traits = LayerTraits(edge_data="features", weights=False)

    def __init__(self, d_in: int, d_out: int, edge_features: int, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.edge = Linear(edge_features, d_in, dtype=dtype)
        self.first = Linear(d_in, d_out, dtype=dtype)
        self.second = Linear(d_out, d_out, dtype=dtype)
        self.eps = nn.Parameter(torch.zeros((), dtype=dtype))

    def drop_bias(self) -> None:
        """See `Conv.drop_bias`."""
        self.second.bias = None

    def message(self, source: torch.Tensor, edge: torch.Tensor) -> torch.Tensor:
        """(E, d_in) of edges."""
        return torch.relu(source + self.edge(edge))

    def forward(self, graph: Graph, x: torch.Tensor) -> torch.Tensor:
        edge = graph.edge_features
        how = RowMessages(relu=True, weight=self.edge.weight, bias=self.edge.bias, edge=edge)
        total = graph.propagate(self.message, "sum", x_src=x, edge=edge, scores=how)
        return self.second(torch.relu(self.first(total + (1 + self.eps) * x)))


def _build(spec: ModelSpec) -> Model:
    if spec.edge_features == 0:
        raise GraphError(
            "gine needs edges with features, and there are none; import the graph with them (edges.features), train "
            "with --edge-features file, or use gin"
        )
    return stacked(partial(GINEConv, edge_features=spec.edge_features))(spec)


MODEL = ModelEntry(_build, lambda spec: GINEConv, STACK)
