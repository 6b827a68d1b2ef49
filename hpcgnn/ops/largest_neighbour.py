"""The largest of the in-neighbours, column by column, by sequential aggregation.

Forward: rows x_j stream by; y_i = max_j x_j, and c_i counts the edges with it. Backward, at the owner of the
*source*: rows [gy_i / c_i | y_i] stream by along the out-edges, and gx_j = Σ_i (gy_i / c_i) where x_j = y_i. A halo row
costs F numbers forwards and 2F backwards; fetching x again and sending gradients back would cost the same, and a
scatter. Equal elements share the gradient evenly, so that it does not depend on the order of edges. Rows without
in-edges give zeros.

If rows are narrowed on the way, the largest is taken of the narrowed ones, also of the rank's own. Otherwise x_j = y_i
would compare numbers that were rounded on one side only.
"""

from collections.abc import Sequence

import torch

from hpcgnn import kernels
from hpcgnn.exchange.stream import Rows, Stream
from hpcgnn.ops.site import differentiable


class LargestNeighbour:
    """The operator of a rank. Collective in both directions.

    forward_stream, backward_stream: Stream along in-edges and along out-edges.
    """

    def __init__(self, forward_stream: Stream, backward_stream: Stream) -> None:
        self.forward_stream, self.backward_stream = forward_stream, backward_stream

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """y (n_p, F) from own rows x (n_p, F), differentiably."""
        return differentiable(self, x)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        """See `differentiable`. Kept are x, y and c."""
        x = self.forward_stream.wire.rounded(x.contiguous())
        y, count = torch.full_like(x, -torch.inf), torch.zeros_like(x)
        for block, rows, *_ in self.forward_stream(Rows(x), "halo_forward"):
            kernels.gather_largest(y, count, rows, block.indptr, block.indices, rows=block.rows)
        y.masked_fill_(count == 0, 0)
        return y, (x, y, count)

    def backward(
        self, gy: torch.Tensor, wanted: Sequence[bool], x: torch.Tensor, y: torch.Tensor, count: torch.Tensor
    ) -> tuple[torch.Tensor]:
        """See `differentiable`."""
        sent, gradient = torch.cat([gy / count.clamp(min=1), y], 1), torch.zeros_like(x)
        for block, rows, *_ in self.backward_stream(Rows(sent), "halo_backward"):
            kernels.gather_matching(gradient, x, rows, block.indptr, block.indices, rows=block.rows)
        return (gradient,)
