"""A linear convolution y = A(x) W_n + x W_s + b with old remote rows: the gradient belongs to the used rows.

    gW_n = (A x_used)ᵀ gy        gW_s = xᵀ gy        gx = Aᵀ(gy W_nᵀ) + gy W_sᵀ

ops/convolution.py makes gW_n of xᵀ t with t = Aᵀ gy, for (A x)ᵀ gy = xᵀ (Aᵀ gy), and keeps no aggregate. With delayed
rows that does not hold: A was applied to old rows, and the received part of Aᵀ gy belongs to an older gy. So the
aggregate is kept here, one matrix (m, d_in) more. Aᵀ(gy W_nᵀ) goes back, with the used weights, as in PipeGCN (Wan et
al., ICLR'22, algorithm 1).
"""

from typing import Any

import torch

from hpcgnn import kernels
from hpcgnn.ops.activation_dropout import ReluDropout
from hpcgnn.ops.linear_operator import LinearOperator
from hpcgnn.ops.row_tiles import row_tiles


class ConvolveStale(torch.autograd.Function):
    """y (m, d_out) of own rows x (n_p, d_in). Collective. Arguments as of `Convolve`; kept: not used."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        neighbour: torch.Tensor,
        own: torch.Tensor | None,
        bias: torch.Tensor | None,
        operator: LinearOperator,
        activation: ReluDropout | None = None,
        kept: torch.dtype | None = None,
    ) -> torch.Tensor:
        x = x.contiguous()
        if activation is not None:
            for rows in row_tiles(len(x)):
                activation.apply_(x[rows], rows)
        used = operator.multiply(x)
        ctx.operator, ctx.activation, ctx.has_bias = operator, activation, bias is not None
        ctx.x, ctx.used = x, used  # both are written to: autograd must not watch them
        ctx.weights = neighbour, own
        y = operator.arena.empty(len(used), neighbour.shape[1], dtype=x.dtype)
        for rows in row_tiles(len(used)):
            kernels.multiply(y[rows], used[rows], neighbour, bias)
            if own is not None:
                kernels.multiply(y[rows], _taken(x, operator, rows), own, add=True)
        return y

    @staticmethod
    def backward(ctx: Any, gy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, used, (neighbour, own), operator, activation = ctx.x, ctx.used, ctx.weights, ctx.operator, ctx.activation
        gy, tiles, needs_x = gy.contiguous(), row_tiles(len(used)), ctx.needs_input_grad[0]
        g_neighbour = neighbour.new_zeros(neighbour.shape)
        g_own = None if own is None else own.new_zeros(own.shape)
        g_bias, gx = torch.zeros_like(neighbour[0]) if ctx.has_bias else None, None
        spare = operator.arena.empty(tiles[0].stop if tiles else 0, x.shape[1], dtype=x.dtype)
        for rows in tiles:
            out = spare[: rows.stop - rows.start] if needs_x else None
            kernels.project_backward(out, g_neighbour, used[rows], gy[rows], neighbour, y_sums=g_bias)
            if needs_x:
                used[rows] = out  # it has done its work
        if needs_x:
            gx = operator.multiply_transposed(used)
        if g_own is not None:
            for rows in tiles:
                read, computed = _taken(x, operator, rows), operator.outputs
                if computed is None or gx is None:
                    out = None if gx is None else gx[rows]
                    kernels.project_backward(out, g_own, read, gy[rows], own, add=needs_x)
                else:
                    kernels.project_backward(spare[: len(read)], g_own, read, gy[rows], own)
                    kernels.add_rows(gx, computed[rows], spare[: len(read)], distinct=True)
        if activation is not None and needs_x:
            activation.gradient(gx, x, x)
            gx = x
        ctx.x = ctx.used = None
        return gx, g_neighbour, g_own, g_bias, None, None, None


def _taken(x: torch.Tensor, operator: LinearOperator, rows: slice) -> torch.Tensor:
    """The rows of x that stand where the operator computes its rows `rows`."""
    return x[rows] if operator.outputs is None else x.index_select(0, operator.outputs[rows])
