"""A product of rows with a matrix of weights as one operator: all its gradients come from one pass over the rows."""

from typing import Any, cast

import torch

from hpcgnn import kernels
from hpcgnn.ops.layer_input import Input
from hpcgnn.ops.row_tiles import in_rows


def product(x: Input, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """x (n, d_in) weight (d_in, d_out) + bias (d_out,) or None, differentiable once in all three.

    All are of one dtype. Products of float32 and float64 are the kernels' (see kernels/projection.py). Those of sparse
    features are their own.
    """
    if isinstance(x, torch.Tensor) and x.dtype == weight.dtype and x.dtype in (torch.float32, torch.float64):
        return cast(torch.Tensor, _Product.apply(x, weight, bias))
    y = x @ weight
    return y if bias is None else y + bias


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        x = in_rows(x)
        out = x.new_empty(len(x), weight.shape[1])
        kernels.multiply(out, x, weight, bias)
        ctx.has_bias = bias is not None
        ctx.save_for_backward(x, weight)
        return out

    @staticmethod
    def backward(ctx: Any, gy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (x, weight), gy = ctx.saved_tensors, in_rows(gy)
        gx = x.new_empty(x.shape) if ctx.needs_input_grad[0] else None
        g_weight, g_bias = torch.zeros(weight.shape, dtype=x.dtype), weight.new_zeros(weight.shape[1])
        kernels.project_backward(gx, g_weight, x, gy, weight, y_sums=g_bias if ctx.has_bias else None)
        return gx, g_weight, g_bias if ctx.has_bias else None
