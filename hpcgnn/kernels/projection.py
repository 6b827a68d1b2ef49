"""A layer's product of its rows with its weights, with ELU and dropout before it, and backwards all the gradients.

With our own products (see products.py) this is one pass over the rows. A block of them stays in the cache from ELU to
the product, and from the product to ELU's gradient. No thread waits for another in between. With torch's products
(see `one_pass`) each step stores its results: the caller then provides memory for them, and passes tiles of rows.
"""

from typing import NamedTuple

import torch

from . import checks, masking
from .activation import bias_gradient, elu_gradient
from .activation import elu as elu_of
from .interface import RowRule
from .library import kernels, load
from .native import Native
from .products import multiply
from .randomness import checked_key

_TYPES = (torch.float32, torch.float64)
_NARROW = (*_TYPES, torch.bfloat16)


class Elu(NamedTuple):
    """ELU and then dropout of rate p: key and ids (n,) as of `dropout`; p = 0 drops nothing."""

    ids: torch.Tensor
    key: int
    p: float


def one_pass(dtype: torch.dtype, threads: int | None = None) -> bool:
    """Whether projections with weights of this type are made in one pass, which needs no memory of the caller's:
    neither for steps, nor, with float32, to widen rows of bfloat16. threads: of a process (None: of this one).
    """
    native = load().kernels
    return isinstance(native, Native) and native.has_products(dtype, threads)


def _one_pass(dtype: torch.dtype) -> Native | None:
    """The kernels that make such projections."""
    return kernels() if one_pass(dtype) else None  # which may be watched


def project(
    out: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    elu: Elu | None = None,
    scratch: torch.Tensor | None = None,
) -> None:
    """out = x weight, or dropout(ELU(x)) weight.

    out (n, d_out) and x (n, d_in) are of one dtype, float32 or float64. Their rows are contiguous and any distance
    apart, without overlap. weight is (d_in, d_out) with any strides. scratch: (1, n or more, d_in) of working memory;
    None: allocated if needed. Raises ValueError for a wrong dtype, shape or layout, MemoryError.
    """
    _check(out, x, weight, elu)
    if elu is None:
        multiply(out, x, weight)
    elif native := _fits(weight, x, out, elu):
        native.project(out, x, weight, _rule(elu))
        checks.written(out)
    else:
        multiply(out, _entered(x, elu, _scratch(scratch, x, 1)), weight)


def project_backward(
    gx: torch.Tensor | None,
    g_weight: torch.Tensor,
    x: torch.Tensor,
    gradient: torch.Tensor,
    weight: torch.Tensor,
    elu: Elu | None = None,
    dots: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    sums: torch.Tensor | None = None,
    scratch: torch.Tensor | None = None,
    y_sums: torch.Tensor | None = None,
    add: bool = False,
    scaled: bool = False,
) -> None:
    """gx = the gradient of x, and g_weight += the gradient of weight, from the gradient of `project`'s result.

    In one pass no result depends on the number of threads. Without ELU, x and gradient may be bfloat16 if the rest is
    float32 (see `one_pass`). Other arguments are as in `project`.

    Args:
        gx: (n, d_in), may be x itself with an ELU; None: not computed.
        g_weight: (d_in, d_out), contiguous.
        gradient: (n, d_out), of the result.
        dots, bias, sums, scaled: (n, H), (d_in,), (d_in,) and bool, as in `elu_gradient`, with ELU only.
        scratch: (2, n or more, d_in) of working memory, or None.
        y_sums: (d_out,) += the sums of gradient's columns, or None.
        add: without ELU, add to gx.
    """
    _check(gradient, x, weight, elu)
    checks.matrix("g_weight", g_weight, (weight.dtype,), *weight.shape)
    if not g_weight.is_contiguous():
        raise ValueError("g_weight: expected a contiguous tensor")
    if gx is not None:
        checks.matrix("gx", gx, (weight.dtype,), *x.shape)
    if elu is None and not (dots is bias is sums is None):
        raise ValueError("dots, bias, sums: expected None where there is no ELU")
    if dots is None and scaled:
        raise ValueError("scaled: expected dots with it, which hold the factors")
    if add and elu is not None:
        raise ValueError("add: expected False where there is an ELU")
    if gx is None and not (dots is sums is None):
        raise ValueError("dots, sums: expected None where gx is")
    for name, vector in (("bias", bias), ("sums", sums)):
        checks.vector(name, vector, x.dtype, x.shape[1], optional=True)
    if dots is not None:
        checks.heads("dots", dots, x)
    checks.vector("y_sums", y_sums, weight.dtype, gradient.shape[1], optional=True)
    if native := _fits(weight, x, gradient, elu):
        native.project_backward(
            gradient, x, weight, _rule(elu), gx, g_weight, dots, bias, sums, y_sums, add, bool(scaled)
        )
    else:
        gradient = gradient.to(weight.dtype)
        if y_sums is not None:
            bias_gradient(y_sums, gradient)
        _step_by_step(gx, g_weight, x, gradient, weight, elu, dots, bias, sums, scratch, add, scaled)
    for tensor in (gx, g_weight, dots, sums, y_sums):
        if tensor is not None:
            checks.written(tensor)


def _step_by_step(
    gx: torch.Tensor | None,
    g_weight: torch.Tensor,
    x: torch.Tensor,
    gradient: torch.Tensor,
    weight: torch.Tensor,
    elu: Elu | None,
    dots: torch.Tensor | None,
    bias: torch.Tensor | None,
    sums: torch.Tensor | None,
    scratch: torch.Tensor | None,
    add: bool,
    scaled: bool,
) -> None:
    if elu is None:
        g_weight.addmm_(x.to(weight.dtype).t(), gradient)
        if gx is not None:
            multiply(gx, gradient, weight.t(), add=add)
        return
    scratch = _scratch(scratch, x, 2)
    entered = _entered(x, elu, scratch).to(weight.dtype)
    g_weight.addmm_(entered.t(), gradient)
    if gx is None:
        return
    product = scratch[1, : len(x)]
    multiply(product, gradient, weight.t())
    if elu.p:
        masking.dropout(product, product, elu.ids, elu.key, elu.p)
        entered.mul_(1 / (masking.kept_scale(elu.p) or 1))
    elu_gradient(gx, product, entered, x, dots, bias, sums, scaled)


def _entered(x: torch.Tensor, elu: Elu, scratch: torch.Tensor) -> torch.Tensor:
    """Return the rows after ELU and dropout, in memory of scratch."""
    out = scratch[0, : len(x)]
    elu_of(out, x)
    if elu.p:
        masking.dropout(out, out, elu.ids, elu.key, elu.p)
    return out


def _scratch(scratch: torch.Tensor | None, x: torch.Tensor, count: int) -> torch.Tensor:
    if scratch is None:
        return x.new_empty(count, *x.shape)
    if scratch.dim() != 3 or len(scratch) < count or scratch.shape[1] < len(x) or scratch.shape[2] != x.shape[1]:
        raise ValueError(f"scratch: expected shape ({count}, >= {len(x)}, {x.shape[1]}), got {tuple(scratch.shape)}")
    return scratch


def _fits(weight: torch.Tensor, x: torch.Tensor, out: torch.Tensor, elu: Elu | None) -> Native | None:
    """The kernels that make this projection in one pass, if there are any."""
    native = _one_pass(weight.dtype)
    return native if x.numel() and out.numel() and (elu is None or masking.rule(elu.p)[0] < 2**32) else None


def _rule(elu: Elu | None) -> RowRule | None:
    """(key, threshold, scale, ids or None), or None."""
    if elu is None:
        return None
    threshold, scale = masking.rule(elu.p)
    return (checked_key(elu.key), threshold, scale, elu.ids) if threshold else (0, 0, 1.0, None)


def _check(out: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, elu: Elu | None) -> None:
    types = _TYPES if elu else _NARROW
    checks.matrix("x", x, types)
    checks.matrix("the product or its gradient", out, types, rows=x.shape[0])
    checks.weights(weight, x, out.shape[1])
    checks.weights(weight.t(), out, x.shape[1])
    if weight.dtype not in _TYPES:
        raise ValueError(f"weight: expected torch.float32 or torch.float64, got {weight.dtype}")
    if elu is not None and elu.p:
        checks.vector("ids", elu.ids, torch.int64, x.shape[0])
