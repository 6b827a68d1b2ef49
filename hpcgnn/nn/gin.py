"""Graph isomorphism network (Xu et al., ICLR'19, eq. 4.1): y = MLP((1 + ε) x + Σ in-neighbours), ε learned.

The MLP has two layers. The first is linear and commutes with the sum, so the narrower side can be sent here as well.
"""

import torch
from torch import nn

from hpcgnn.nn.conv import Conv
from hpcgnn.nn.linear import Linear


class GINConv(Conv):
    norm = "sum"
    self_loops = "keep"
    uses_self = True
    prunable = True

    def __init__(self, d_in, d_out, dtype=None):
        super().__init__(d_in, d_out)
        self.first = Linear(d_in, d_out, dtype=dtype)
        self.second = Linear(d_out, d_out, dtype=dtype)
        self.eps = nn.Parameter(torch.zeros((), dtype=dtype))

    def drop_bias(self):
        self.second.bias = None

    def combine(self, aggregate, x):
        return self.second(torch.relu(self.first(aggregate + (1 + self.eps) * x)))

    def transform_first(self, graph, x):
        z = x @ self.first.weight
        return self.second(torch.relu(graph.aggregate(z, self.norm) + (1 + self.eps) * graph.own(z) + self.first.bias))
