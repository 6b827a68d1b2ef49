"""Products of rows with matrices of weights as one operator. A map's gradients come from one pass over the rows."""

from typing import Any

import torch

from hpcgnn import kernels
from hpcgnn.memory.arena import Arena, recycled
from hpcgnn.ops.layer_input import Input
from hpcgnn.ops.row_tiles import in_rows

#: A weight (d_in, d_out), and a bias (d_out,) or None.
Map = tuple[torch.Tensor, torch.Tensor | None]


def product(x: Input, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """x (n, d_in) weight (d_in, d_out) + bias (d_out,) or None, differentiable in all three.

    All are of one dtype. Products of float32 and float64 are the kernels' (see kernels/projection.py). Others are
    torch's, and those of sparse features their own.
    """
    return products(x, (weight, bias))[0]


def products(x: Input, *maps: Map) -> tuple[torch.Tensor, ...]:
    """The product of x with each map. All gradients of x are added to one matrix."""
    if not isinstance(x, torch.Tensor):
        made = [(x @ weight, bias) for weight, bias in maps]
        return tuple(y if bias is None else y.add_(bias) for y, bias in made)
    if x.dim() == 2 and x.dtype in (torch.float32, torch.float64) and all(x.dtype == w.dtype for w, _ in maps):
        return _Product.apply(x, *(each for pair in maps for each in pair))
    return tuple(torch.nn.functional.linear(x, weight.t(), bias) for weight, bias in maps)


def product_in(arena: Arena, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """The product in memory of an arena; autograd does not know it."""
    y = arena.empty(len(x), weight.shape[1], dtype=x.dtype)
    kernels.multiply(y, x, weight, bias)
    return y


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, *maps: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
        """maps: weight, bias, weight, bias, …"""
        x, weights, made = in_rows(x), [each for each in maps[::2] if each is not None], []
        for weight, bias in zip(weights, maps[1::2], strict=True):
            made.append(recycled(len(x), weight.shape[1], dtype=x.dtype))
            kernels.multiply(made[-1], x, weight, bias)
        ctx.save_for_backward(x, *weights)
        ctx.set_materialize_grads(False)
        return tuple(made)

    @staticmethod
    def backward(ctx: Any, *gys: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        (x, *weights), (of_x, *wanted) = ctx.saved_tensors, ctx.needs_input_grad
        gx: torch.Tensor | None = None
        found: list[torch.Tensor | None] = []
        for gy, weight, of_weight, of_bias in zip(gys, weights, wanted[::2], wanted[1::2], strict=True):
            if gy is None:
                found += None, None
                continue
            if torch.is_grad_enabled():  # somebody wants gradients of these gradients
                gx = gy @ weight.t() if gx is None else gx + gy @ weight.t()
                found += x.t() @ gy, gy.sum(0) if of_bias else None
                continue
            gy, add = in_rows(gy), gx is not None
            if of_x and gx is None:
                gx = recycled(*x.shape, dtype=x.dtype)
            g_weight = torch.zeros(weight.shape, dtype=x.dtype) if of_weight or of_bias else None
            g_bias = weight.new_zeros(weight.shape[1]) if of_bias else None
            if g_weight is not None:
                kernels.project_backward(gx, g_weight, x, gy, weight, y_sums=g_bias, add=add)
            elif gx is not None:
                kernels.multiply(gx, gy, weight.t(), add=add)
            found += g_weight, g_bias
        return gx, *found
