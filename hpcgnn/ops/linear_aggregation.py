"""Linear aggregation y = R A S x by sequential aggregation, and its adjoint by the very same stream.

Forward, rank p computes its own rows  y_p = R_p Σ_q A_pq (S x)_q, one block of remote rows at a time. The gradient is
gx_p = S_p Σ_q (A_qp)^T (R gy)_q: again own rows from streamed remote rows, along the out-edges. So nothing is
refetched, no partial sums are pushed to owners, and no scatter is needed; for an undirected graph both use one
structure. (SAR, Mostafa, MLSys'22, section 3, pushes partial gradients back instead: same bytes, more memory,
scatter-adds.)
"""

import torch

from hpcgnn.exchange.plan import gather_halo
from hpcgnn.ops.row_tiles import row_tiles, sum_type, tile_rows


class LinearAggregation:
    """The operator R A S of a rank, in float32 for rows of bfloat16. Collective in both directions.

    forward_stream, backward_stream: Stream along in-edges and along out-edges. source_scale (S): (n_p,) or None;
    row_scale (R): (m,) or None. outputs: int32 (m,), increasing, the own rows that are computed; None: all, m = n_p.
    """

    def __init__(self, forward_stream, backward_stream, row_scale, source_scale, outputs=None):
        self.forward_stream, self.backward_stream = forward_stream, backward_stream
        self.row_scale, self.source_scale, self.outputs = row_scale, source_scale, outputs
        self.arena = forward_stream.buffers.arena
        self._halo_scales = {}

    def __call__(self, x):
        """Aggregate own rows x (n_p, F) -> (m, F), differentiably."""
        return _Aggregate.apply(x, self)

    @property
    def num_outputs(self):
        """m."""
        return self.forward_stream.own.num_rows

    def outputs_of(self, rows):
        """(slice of the computed rows that are among own rows `rows`, a slice; where each stands there, None: at its
        place).
        """
        if self.outputs is None:
            return rows, None
        first, last = torch.searchsorted(
            self.outputs, torch.tensor([rows.start, rows.stop], dtype=torch.int32)
        ).tolist()
        return slice(first, last), self.outputs[first:last] - rows.start

    def multiply(self, x, out=None, stream=None):
        """R A S x without autograd, into `out` if it is given. stream: another Stream of the same rows and blocks."""
        stream = stream or self.forward_stream
        return self._product(stream, x, self.source_scale, self.row_scale, "halo_forward", out)

    def multiply_transposed(self, gy):
        """S A^T R gy without autograd."""
        return self._product(self.backward_stream, gy, self.row_scale, self.source_scale, "halo_backward")

    def tiles(self, x, transposed=False, y=None):
        """Yield (rows, R A S x of these rows (or S A^T R x)): all own rows, some at a time. Collective: exhaust it.

        What is yielded is valid only until the next. Interior rows need no message: they come while messages are on
        their way, and without a sum that outlives them; the others come when the last message has. y: where sums of its
        shape and type may be kept that long; the caller may write to the rows that it has been given.
        """
        stream, kind = (self.backward_stream, "halo_backward") if transposed else (self.forward_stream, "halo_forward")
        scales = self.row_scale, self.source_scale
        source_scale, row_scale = scales if transposed else reversed(scales)
        own, inner, dtype = stream.own, stream.first_interior, sum_type(x.dtype)
        lent = y is not None and y.shape[1] == x.shape[1] and y.dtype == dtype
        sums = y[:inner] if lent else self.arena.empty(inner, x.shape[1], dtype=dtype)
        sums.zero_()
        room = self.arena.empty(min(tile_rows(), own.num_rows), x.shape[1], dtype=dtype)
        for block, source, scale, _ in self._scaled(stream, x.contiguous(), source_scale, kind):
            for part, at, complete in stream.parts(block):
                if not complete:
                    part.multiply(
                        source, sums[at], scale, None if row_scale is None else row_scale[at], accumulate=True
                    )
                    continue
                for rows in row_tiles(at.stop, at.start):
                    out, factors = room[: rows.stop - rows.start], None if row_scale is None else row_scale[rows]
                    own.slice(rows.start, rows.stop).multiply(source, out, scale, factors, accumulate=False)
                    yield rows, out
        for rows in row_tiles(inner):
            yield rows, room[: rows.stop - rows.start].copy_(sums[rows]) if lent else sums[rows]

    def _product(self, stream, x, source_scale, row_scale, kind, y=None):
        y = self.arena.empty(stream.own.num_rows, x.shape[1], dtype=sum_type(x.dtype)) if y is None else y
        begun = False
        for block, rows, scale, _ in self._scaled(stream, x.contiguous(), source_scale, kind):
            if not begun and block is not stream.own:
                y.zero_()  # halo rows are added to some rows before own ones
            block.multiply(rows, y, scale, row_scale, accumulate=block is not stream.own)
            begun = True
        return y

    def _scaled(self, stream, x, source_scale, kind):
        """What a stream yields of x with these factors.

        Rows of half precision travel unscaled: scaling them before they are sent would round the rows of others once
        more than the own, and the curve would depend on the map.
        """
        if source_scale is None or x.dtype == sum_type(x.dtype):
            yield from stream(x, source_scale, kind, pieces=True)
            return
        if stream not in self._halo_scales:
            self._halo_scales[stream] = gather_halo(stream.plan, source_scale, stream.comm)
        factors = self._halo_scales[stream]
        for block, rows, _, back in stream(x, None, kind, pieces=True):
            first = block.first_column
            yield block, rows, source_scale if first is None else factors[first : first + len(rows)], back


class _Aggregate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, operator):
        ctx.operator = operator
        return operator.multiply(x)

    @staticmethod
    def backward(ctx, gy):
        return ctx.operator.multiply_transposed(gy), None
