"""Graph isomorphism network (Xu et al., ICLR'19, eq. 4.1): y = MLP((1 + ε) x + Σ in-neighbours), ε learned.

The MLP has two layers. The first is linear and commutes with the sum, so the narrower side can be sent here as well.
"""

import torch
from torch import nn

from hpcgnn.nn.conv import Conv, Products
from hpcgnn.nn.entry import LINEAR, ModelEntry, stacked
from hpcgnn.nn.graph import Graph
from hpcgnn.nn.linear import Linear
from hpcgnn.ops.draws import Purpose
from hpcgnn.ops.inputs import Input, Matrix
from hpcgnn.traits import LayerTraits


class GINConv(Conv):
    norm = "sum"
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

    def drop_bias(self) -> None:
        self.second.bias = None

    def combine(self, aggregate: torch.Tensor, x: torch.Tensor | None) -> torch.Tensor:
        assert x is not None, "this convolution uses its input"
        return self.finish(self.first(aggregate + (1 + self.eps) * x))

    def finish(self, y: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu_(y))

    def products_of_constants(self, aggregate: Matrix, x: Matrix) -> Products:
        """See `Conv`. (a + (1 + ε) x) W is a W + x (1 + ε) W, so ε needs no saved tensor as wide as the input."""
        weight = self.first.weight
        own = (1 + self.eps) * weight
        return [(aggregate, weight, Purpose.DROPOUT_AGGREGATE), (x, own, Purpose.DROPOUT)], self.first.bias

    def transform_first(self, graph: Graph, x: Input) -> torch.Tensor:
        z = x @ self.first.weight
        assert self.first.bias is not None, "nobody drops it"
        return self.finish(graph.aggregate(z, self.norm) + (1 + self.eps) * graph.own(z) + self.first.bias)


MODEL = ModelEntry(stacked(GINConv), lambda spec: GINConv, LINEAR)
