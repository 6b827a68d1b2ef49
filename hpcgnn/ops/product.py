"""A product of rows with a matrix of weights as one operator: all its gradients come from one pass over the rows."""

from typing import Any, cast

import torch

from hpcgnn import kernels
from hpcgnn.memory.arena import recycled
from hpcgnn.ops.layer_input import Input
from hpcgnn.ops.row_tiles import in_rows


def product(x: Input, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """x (n, d_in) weight (d_in, d_out) + bias (d_out,) or None, differentiable in all three.

    All are of one dtype. Products of float32 and float64 are the kernels' (see kernels/projection.py). Others are
    torch's, and those of sparse features their own.
    """
    if not isinstance(x, torch.Tensor):
        y = x @ weight
        return y if bias is None else y.add_(bias)
    if x.dim() == 2 and x.dtype == weight.dtype and x.dtype in (torch.float32, torch.float64):
        return cast(torch.Tensor, _Product.apply(x, weight, bias))
    return torch.nn.functional.linear(x, weight.t(), bias)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        x = in_rows(x)
        out = recycled(len(x), weight.shape[1], dtype=x.dtype)
        kernels.multiply(out, x, weight, bias)
        ctx.save_for_backward(x, weight)
        return out

    @staticmethod
    def backward(ctx: Any, gy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (x, weight), (of_x, of_weight, of_bias) = ctx.saved_tensors, ctx.needs_input_grad
        if torch.is_grad_enabled():  # somebody wants gradients of these gradients
            return gy @ weight.t(), x.t() @ gy, gy.sum(0) if of_bias else None
        gy, gx = in_rows(gy), recycled(*x.shape, dtype=x.dtype) if of_x else None
        if not of_weight and not of_bias:
            kernels.multiply(cast(torch.Tensor, gx), gy, weight.t())
            return gx, None, None
        g_weight, g_bias = torch.zeros(weight.shape, dtype=x.dtype), weight.new_zeros(weight.shape[1])
        kernels.project_backward(gx, g_weight, x, gy, weight, y_sums=g_bias if of_bias else None)
        return gx, g_weight, g_bias if of_bias else None
