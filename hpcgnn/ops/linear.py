"""Linear aggregation y = R A S x by sequential aggregation, and its adjoint by the very same stream.

Forward, rank p computes its own rows  y_p = R_p Σ_q A_pq (S x)_q, one block of remote rows at a time. The gradient is
gx_p = S_p Σ_q (A_qp)^T (R gy)_q: again own rows from streamed remote rows, along the out-edges. So nothing is
refetched, no partial sums are pushed to owners, and no scatter is needed; for an undirected graph both use one
structure. (SAR, Mostafa, MLSys'22, section 3, pushes partial gradients back instead: same bytes, more memory,
scatter-adds.)
"""

import torch


class LinearAggregation:
    """The operator R A S of a rank. Collective in both directions.

    forward_stream, backward_stream: Stream along in-edges and along out-edges. row_scale (R), source_scale (S): (n_p,)
    or None.
    """

    def __init__(self, forward_stream, backward_stream, row_scale, source_scale):
        self.forward_stream, self.backward_stream = forward_stream, backward_stream
        self.row_scale, self.source_scale = row_scale, source_scale

    def __call__(self, x):
        """Aggregate own rows x (n_p, F) -> (n_p, F), differentiably."""
        return _Aggregate.apply(x, self)

    def multiply(self, x):
        """R A S x without autograd."""
        return _stream_product(self.forward_stream, x, self.source_scale, self.row_scale, "halo_forward")

    def multiply_transposed(self, gy):
        """S A^T R gy without autograd."""
        return _stream_product(self.backward_stream, gy, self.row_scale, self.source_scale, "halo_backward")


def _stream_product(stream, x, source_scale, row_scale, kind):
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    for block, rows, scale, _ in stream(x.contiguous(), source_scale, kind):
        block.multiply(rows, y, scale, row_scale, accumulate=block is not stream.own)
    return y


class _Aggregate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, operator):
        ctx.operator = operator
        return operator.multiply(x)

    @staticmethod
    def backward(ctx, gy):
        return ctx.operator.multiply_transposed(gy), None
