"""A layer's product of its rows with its weights, with ELU and dropout before it, and backwards all the gradients.

With our own products (see products.py) this is one pass over the rows. A block of them stays in the cache from ELU to
the product, and from the product to ELU's gradient. No thread waits for another in between. With torch's products
(see `one_pass`) each step stores its results: the caller then provides memory for them, and passes tiles of rows.
"""

from types import SimpleNamespace
from typing import Any, NamedTuple

import torch

from . import library, masking
from .activation import bias_gradient, elu_gradient, heads_of
from .activation import elu as elu_of
from .kernel import Kernel, kernel
from .products import multiply
from .randomness import checked_key

_NO_MEMORY = "a projection: no memory to work in"
#: Of both directions: with ELU, threshold and scale are dropout's, and there are no ids where nothing is dropped.
_COMMON = {
    "x": "number (rows, depth)",
    "weight": "strided sum of x (depth, width)",
    "ids": "optional int64 [rows]",
    "key": 0,
    "threshold": 0,
    "scale": 1.0,
    "elu": False,
    "rounded": False,
}
_project = kernel("hg_project", {"out": "written factors of weight as y (rows, width)"} | _COMMON, memory=_NO_MEMORY)(
    None
)
_project_backward = kernel(
    "hg_project_backward",
    {
        "gradient": "factors of weight as y (rows, width)",
        "gx": "optional written type of weight (rows, depth)",
        "g_weight": "written contiguous type of weight (depth, width)",
        "dots": "optional written type of x (rows, heads)",
        "bias": "optional type of x [depth]",
        "sums": "optional written type of x [depth]",
        "y_sums": "optional written type of weight [width]",
        "heads": 1,
        "add": False,
        "scaled": False,
    }
    | _COMMON,
    memory=_NO_MEMORY,
)(None)


class Elu(NamedTuple):
    """ELU and then dropout of rate p: key and ids (n,) as of `dropout`; p = 0 drops nothing."""

    ids: torch.Tensor
    key: int
    p: float


def one_pass(dtype: torch.dtype, threads: int | None = None) -> bool:
    """Whether projections with weights of this type are made in one pass, which needs no memory of the caller's:
    neither for steps, nor, with float32, to widen rows of bfloat16. threads: of a process (None: of this one).
    """
    native = library.load().native
    return native is not None and native.has_products(dtype, threads)


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
    given = {"out": out, "x": x, "weight": weight}
    if elu is None:
        _project.check(**given)
        multiply(out, x, weight)
    elif not _in_one_pass(_project, given, out, elu):
        multiply(out, _entered(x, elu, _scratch(scratch, x, 1)), weight)


def project_backward(
    gx: torch.Tensor | None,
    g_weight: torch.Tensor,
    x: torch.Tensor,
    gradient: torch.Tensor,
    weight: torch.Tensor,
    elu: Elu | None = None,
    **more: Any,
) -> None:
    """gx = the gradient of x, and g_weight += the gradient of weight, from the gradient of `project`'s result.

    In one pass no result depends on the number of threads. Without ELU, x and gradient may be bfloat16 if the rest is
    float32 (see `one_pass`). Other arguments are as in `project`.

    Args:
        gx: (n, d_in), may be x itself with an ELU; None: not computed.
        g_weight: (d_in, d_out), contiguous.
        gradient: (n, d_out), of the result.
        more: dots, bias, sums, scaled: (n, H), (d_in,), (d_in,) and bool, as in `elu_gradient`, with ELU only. scratch:
            (2, n or more, d_in) of working memory, or None. y_sums: (d_out,) += the sums of gradient's columns, or
            None. add: without ELU, add to gx.
    """
    a = SimpleNamespace(**dict.fromkeys(("dots", "bias", "sums", "scratch", "y_sums")), add=False, scaled=False)
    vars(a).update(more)
    if elu is None and not (a.dots is a.bias is a.sums is None):
        raise ValueError("dots, bias, sums: expected None where there is no ELU")
    if a.dots is None and a.scaled:
        raise ValueError("scaled: expected dots with it, which hold the factors")
    if a.add and elu is not None:
        raise ValueError("add: expected False where there is an ELU")
    if gx is None and not (a.dots is a.sums is None):
        raise ValueError("dots, sums: expected None where gx is")
    scratch = more.pop("scratch", None)
    given = {"gx": gx, "g_weight": g_weight, "x": x, "gradient": gradient, "weight": weight, **more}
    given["heads"] = heads_of(a.dots, x.shape[-1])
    if _in_one_pass(_project_backward, given, gradient, elu):
        return
    gradient = gradient.to(weight.dtype)
    if a.y_sums is not None:
        bias_gradient(a.y_sums, gradient)
    if elu is None:
        g_weight.addmm_(x.to(weight.dtype).t(), gradient)
        if gx is not None:
            multiply(gx, gradient, weight.t(), add=a.add)
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
    elu_gradient(gx, product, entered, x, a.dots, bias=a.bias, sums=a.sums, scaled=a.scaled)


def _in_one_pass(kernel: Kernel, given: dict[str, Any], y: torch.Tensor, elu: Elu | None) -> bool:
    """Check the arguments, and compute where the compiled kernel does all in one pass; returns whether it did."""
    x, weight, threshold = given["x"], given["weight"], 0
    if elu is not None:
        for name, tensor in (("x", x), ("the product or its gradient", y)):
            if tensor.dtype == torch.bfloat16:
                raise ValueError(f"{name}: expected torch.float32 or torch.float64 with ELU, got {tensor.dtype}")
        threshold, scale = masking.rule(elu.p)
        given |= {"elu": True, "threshold": threshold, "scale": scale}
        if threshold:
            given |= {"ids": elu.ids, "key": checked_key(elu.key)}
    native = library.load().native
    rounded = None if native is None else native.factors(weight.dtype)
    if rounded is None or threshold == 2**32 or not x.numel() or not y.numel():
        kernel.check(**given)
        return False
    kernel(**given, rounded=rounded)
    return True


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
