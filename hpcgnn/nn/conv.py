"""What all convolutions share: two verbs, and the choice of the narrower side to send.

A linear convolution is `gather` (aggregate the input: needs the neighbours) and then `combine` (everything else:
local). Keeping them apart is what lets a constant input be aggregated once and kept. Since A(xW) = (Ax)W, the
aggregation can also come after the transformation; we send whichever of the two is narrower.
"""

from torch import nn

from hpcgnn.nn.graph import DroppedRows


class Conv(nn.Module):
    """Base of the convolutions. d_in, d_out: widths. norm: how the neighbours are normalised (see graph/norms.py).

    uses_self: whether `combine` reads x besides its aggregate.
    """

    norm = "sum"
    uses_self = False

    def __init__(self, d_in, d_out):
        super().__init__()
        self.d_in, self.d_out = d_in, d_out

    def gather(self, graph, x):
        """The aggregate of raw inputs x (n_p, d_in) -> (n_p, d_in). Collective."""
        return graph.aggregate(x, self.norm)

    def combine(self, aggregate, x):
        """The output (n_p, d_out) from the aggregate (n_p, d_in) and, if `uses_self`, the input x (n_p, d_in).
        Local.
        """
        raise NotImplementedError

    def transform_first(self, graph, x):
        """The same output from aggregating transformed rows of width d_out; x may be `DroppedRows`. Collective."""
        raise NotImplementedError

    def forward(self, graph, x):
        """Output (n_p, d_out). Collective."""
        if self.d_out < self.d_in or isinstance(x, DroppedRows):
            return self.transform_first(graph, x)
        return self.combine(self.gather(graph, x), x)
