"""Graph convolution (Kipf and Welling, ICLR'17): y = D^-1/2 A D^-1/2 x W + b, where A has the self loops."""

from hpcgnn.nn.conv import Conv
from hpcgnn.nn.linear import Linear


class GCNConv(Conv):
    norm = "sym"
    self_loops = "add"

    def __init__(self, d_in, d_out, dtype=None):
        super().__init__(d_in, d_out)
        self.linear = Linear(d_in, d_out, dtype=dtype)

    def combine(self, aggregate, x):
        return self.linear(aggregate)

    def transform_first(self, graph, x):
        return graph.aggregate(x @ self.linear.weight, self.norm).add_(self.linear.bias)
