"""GraphSAGE, max aggregators (Hamilton et al., NIPS'17, eq. 3): y = W_n · max_j (…) + W_s x + b.

`SAGEMaxConv` takes the largest of the neighbours' rows as they are, `SAGEPoolConv`, the paper's, of relu(W_p x_j +
b_p). A maximum does not commute with W_n, so that the input side is always what travels.
"""

import torch

from hpcgnn.nn.conv import Conv, begin_as
from hpcgnn.nn.linear import Linear


class SAGEMaxConv(Conv):
    self_loops = "keep"
    uses_self = True

    def __init__(self, d_in, d_out, dtype=None):
        super().__init__(d_in, d_out)
        self.neighbour = Linear(d_in, d_out, bias=False, dtype=dtype)
        self.own = Linear(d_in, d_out, dtype=dtype)

    def drop_bias(self):
        self.own.bias = None

    def begin_as(self, weight, bias):
        """As `conv.begin_as` says."""
        begin_as(self.neighbour.weight, self.own.weight, self.own.bias, weight, bias)

    def gather(self, graph, x):
        return graph.largest(x)

    def combine(self, aggregate, x):
        return torch.addmm(self.own(x), aggregate, self.neighbour.weight)

    def forward(self, graph, x):
        return self.combine(self.gather(graph, x), x)


class SAGEPoolConv(SAGEMaxConv):
    def __init__(self, d_in, d_out, dtype=None):
        super().__init__(d_in, d_out, dtype)
        self.pool = Linear(d_in, d_out, dtype=dtype)
        self.neighbour = Linear(d_out, d_out, bias=False, dtype=dtype)

    def gather(self, graph, x):
        return graph.largest(torch.relu(self.pool(x)))
