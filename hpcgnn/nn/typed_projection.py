"""A projection of features by the type of their node, before the first layer of relational models."""

import torch
from torch import nn

from hpcgnn.nn.graph import Graph
from hpcgnn.nn.linear import Glorot
from hpcgnn.ops.inputs import Input


class TypedProjection(nn.Module):
    """x_i W_t(i) + b_t(i) by the node's type, then ReLU: forward(graph, x (n_p, d_in)) -> (n_p, d_out). Local."""

    def __init__(self, d_in: int, d_out: int, num_types: int, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.d_in, self.d_out = d_in, d_out
        self.weights = nn.Parameter(torch.zeros(num_types, d_in, d_out, dtype=dtype))
        self.bias = nn.Parameter(torch.zeros(num_types, d_out, dtype=dtype))

    def glorot(self) -> list[Glorot]:
        """Each type's weights by themselves, and its bias, which may be all that the type has, likewise."""
        each = [(weight, self.d_in, self.d_out) for weight in self.weights.data]
        return [*each, (self.bias, self.d_out, self.d_out)]

    def forward(self, graph: Graph, x: Input) -> torch.Tensor:
        kinds, parts, order = graph.node_type, [], []
        for kind, weight in enumerate(self.weights):
            rows = torch.nonzero(kinds == kind).flatten()
            order.append(rows)
            # Sparse features have no rows to pick from: all are multiplied, and the type's are taken.
            parts.append(x[rows] @ weight if isinstance(x, torch.Tensor) else (x @ weight)[rows])
        place = torch.cat(order).argsort()
        return torch.relu_(torch.cat(parts)[place] + self.bias[kinds])
