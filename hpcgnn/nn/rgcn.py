"""Relational graph convolution (Schlichtkrull et al., ESWC'18, eqs. 2 and 3): y_i = Σ_r mean_j∈N_r(i) W_r x_j + W_0 x_i
+ b, W_r = Σ_b a_rb V_b.

A node itself has W_0. Self loops are added on request alone (`--self-loops add`), and are then one relation more: W_R
x_i besides W_0 x_i, at the nodes that have no loop of the file's, and with a share in the bases.

Graphs with several types of nodes get a projection of their own for each type before the first layer; a type whose
features are all zero has an embedding by its bias.
"""

import torch
from torch import nn

from hpcgnn.nn.graph import DroppedRows, Graph
from hpcgnn.nn.linear import Glorot, Linear


class RGCNConv(nn.Module):
    """forward(graph, x (n_p, d_in)) -> (n_p, d_out). Collective. num_types: relations R; num_bases: B, at most R."""

    self_loops = "keep"

    def __init__(self, d_in: int, d_out: int, num_types: int, num_bases: int, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.d_in, self.d_out = d_in, d_out
        num_bases = min(num_bases, max(1, num_types))
        self.coefficients = nn.Parameter(torch.zeros(num_types, num_bases, dtype=dtype))
        self.bases = nn.Parameter(torch.zeros(num_bases, d_in, d_out, dtype=dtype))
        self.own = Linear(d_in, d_out, dtype=dtype)

    def drop_bias(self) -> None:
        """As that of nn.conv.Conv."""
        self.own.bias = None

    def glorot(self) -> list[Glorot]:
        """Each basis by itself, and the coefficients so that W_r varies about as one basis does."""
        each = [(basis, self.d_in, self.d_out) for basis in self.bases.data]
        count = self.coefficients.shape[1]
        return [*each, (self.coefficients, count, count)]

    def forward(self, graph: Graph, x: torch.Tensor) -> torch.Tensor:
        return graph.relate(x, self.coefficients, self.bases) + self.own(x)


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

    def forward(self, graph: Graph, x: torch.Tensor | DroppedRows) -> torch.Tensor:
        kinds, parts, order = graph.node_type, [], []
        for kind, weight in enumerate(self.weights):
            rows = torch.nonzero(kinds == kind).flatten()
            order.append(rows)
            # Sparse features have no rows to pick from: all are multiplied, and the type's are taken.
            parts.append((x @ weight)[rows] if isinstance(x, DroppedRows) else x[rows] @ weight)
        place = torch.cat(order).argsort()
        return torch.relu_(torch.cat(parts)[place] + self.bias[kinds])
