"""Simplified graph convolution (Wu et al., ICML'19, eq. 8): y = (D^-1/2 A D^-1/2)^K x W + b, one linear layer after K
hops.
"""

from hpcgnn.nn.conv import Conv
from hpcgnn.nn.linear import Linear


class SGCConv(Conv):
    norm = "sym"
    self_loops = "add"

    def __init__(self, d_in, d_out, hops, dtype=None):
        super().__init__(d_in, d_out)
        self.hops = hops
        self.linear = Linear(d_in, d_out, dtype=dtype)

    def gather(self, graph, x):
        for _ in range(self.hops):
            x = graph.aggregate(x, self.norm)
        return x

    def combine(self, aggregate, x):
        return self.linear(aggregate)

    def transform_first(self, graph, x):
        return self.gather(graph, x @ self.linear.weight).add_(self.linear.bias)
