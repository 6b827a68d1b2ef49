"""A first layer that narrows constant inputs: y = A(x W_n) + x W_s + b, where x is read some rows at a time.

It computes what `Convolve` (convolution.py) does, in the same order. But neither widened features nor dropped ones ever
exist as a whole: a tile is widened, and its dropout drawn, in each direction. Nothing is kept for the gradient.
"""

import contextlib
from typing import TYPE_CHECKING, Any

import torch

from hpcgnn import kernels
from hpcgnn.ops.constants import ConstantRows
from hpcgnn.ops.row_tiles import Cast, read_type, row_tiles

if TYPE_CHECKING:
    from hpcgnn.ops.linear_operator import LinearOperator


def convolve_constants(
    x: ConstantRows,
    neighbour: torch.Tensor,
    own: torch.Tensor | None,
    bias: torch.Tensor | None,
    operator: "LinearOperator",
    kept: torch.dtype | None,
) -> torch.Tensor:
    """y (m, d_out) of own rows x (n_p, d_in), d_out < d_in, differentiable in the weights; arguments as of `Convolve`.
    Collective.
    """
    own = None if own is None else x.scaled(own)
    return _ConvolveConstants.apply(x, x.scaled(neighbour), own, bias, operator, kept)


class _ConvolveConstants(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: ConstantRows,
        neighbour: torch.Tensor,
        own: torch.Tensor | None,
        bias: torch.Tensor | None,
        operator: "LinearOperator",
        kept: torch.dtype | None,
    ) -> torch.Tensor:
        ctx.x, ctx.weights, ctx.operator, ctx.has_bias = x, (neighbour, own), operator, bias is not None
        dtype, width = neighbour.dtype, neighbour.shape[1]
        y = operator.empty_streamed(operator.num_outputs, width, kept or dtype, transposed=True)
        sent = operator.empty_streamed(len(x), width, dtype)
        results = Cast(operator.arena, y, dtype)
        with contextlib.ExitStack() as files:
            read = x.reader(False, dtype, files)
            for rows in row_tiles(len(x)):
                kernels.multiply(sent[rows], read(rows), neighbour)
            read = read if x.outputs is None else x.reader(True, dtype, files)
            for rows, aggregate in (tile for part in operator.parts(sent, y=y) for tile in part.tiles()):

                def result(out: torch.Tensor) -> None:
                    out.copy_(aggregate) if bias is None else torch.add(aggregate, bias, out=out)
                    if own is not None:
                        kernels.multiply(out, read(rows), own, add=True)

                results.write(y[rows], result)
        return y

    @staticmethod
    def backward(ctx: Any, gy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, (neighbour, own), operator = ctx.x, ctx.weights, ctx.operator
        gy, dtype = gy.contiguous(), neighbour.dtype
        g_neighbour = neighbour.new_zeros(neighbour.shape)
        g_own = None if own is None else own.new_zeros(own.shape)
        g_bias = torch.zeros_like(neighbour[0]) if ctx.has_bias else None
        parts = operator.parts(gy, transposed=True)
        gradients = Cast(operator.arena, gy, dtype if own is None else read_type(gy, dtype))
        at_once = own is None and kernels.convolves(gy, neighbour)
        if g_bias is not None and at_once:
            kernels.bias_gradient(g_bias, gy)
        with contextlib.ExitStack() as files:
            read = x.reader(False, dtype, files)
            picked = read if x.outputs is None else x.reader(True, dtype, files)
            for rows, t in (tile for part in parts for tile in part.tiles()):
                mine, place = operator.outputs_of(rows)
                part = read(rows)
                kernels.project_backward(None, g_neighbour, part, t, neighbour)
                if g_own is not None:
                    part = part if place is None else picked(mine)
                    kernels.project_backward(None, g_own, part, gradients.read(gy[mine]), own, y_sums=g_bias)
                elif g_bias is not None and not at_once:
                    kernels.bias_gradient(g_bias, gradients.read(gy[mine]))
        return None, g_neighbour, g_own, g_bias, None, None
