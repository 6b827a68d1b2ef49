"""GraphSAGE, mean aggregator (Hamilton et al., NIPS'17, algorithm 1): y = W_n · mean of in-neighbours + W_s x + b."""

import torch

from hpcgnn.nn.conv import Conv
from hpcgnn.nn.linear import Linear


class SAGEConv(Conv):
    norm = "mean"
    self_loops = "keep"
    uses_self = True

    def __init__(self, d_in, d_out, dtype=None):
        super().__init__(d_in, d_out)
        self.neighbour = Linear(d_in, d_out, bias=False, dtype=dtype)
        self.own = Linear(d_in, d_out, dtype=dtype)

    def combine(self, aggregate, x):
        return torch.addmm(self.own(x), aggregate, self.neighbour.weight)

    def transform_first(self, graph, x):
        return self.own(x).add_(graph.aggregate(self.neighbour(x), self.norm))
