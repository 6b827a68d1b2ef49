"""Products of the rows of many nodes with a small matrix of weights: most of the arithmetic of an epoch.

Products are alone, or with ELU and dropout before them, and backwards with all the gradients.

torch has products from MKL and oneDNN on x86, which leave much of an AMD processor unused. There the product of float32
is our own. Elsewhere, and for other types, it is torch's.

With our own products a projection is one pass over the rows. A block of them stays in the cache from ELU to the
product, and from the product to ELU's gradient. No thread waits for another in between. With torch's products (see
`one_pass`) each step stores its results: the caller then provides memory for them, and passes tiles of rows.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from . import library
from .kernel import Arguments, kernel
from .randomness import dropout, kept_scale, rule
from .rowwise import bias_gradient, elu_gradient, heads_of
from .rowwise import elu as elu_of

_NO_MEMORY = "a product: no memory to work in"


@kernel(
    "hg_convolve",
    {
        "out": "written type of weight as y (rows, width)",
        "x": "number (rows, depth)",
        "weight": "strided weights of x as own (depth, width)",
        "bias": "optional type of weight [width]",
        "sums": "optional type of weight (rows, streamed)",
    },
    memory=_NO_MEMORY,
    name="multiply",
)
def _multiply(a: Arguments) -> None:
    x = a.x.to(a.weight.dtype)
    if a.sums is not None:
        a.out.addmm_(x, a.weight)
    elif a.bias is None:
        torch.mm(x, a.weight, out=a.out)
    else:
        torch.addmm(a.bias, x, a.weight, out=a.out)


def multiply(
    out: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, add: bool = False
) -> None:
    """out = x weight + bias, or with `add` out += x weight.

    Float32 is summed in float32. Autograd does not know this function: call it without recording gradients. All
    matrices are of one dtype, but x may be bfloat16 if the others are float32 (see `one_pass`).

    Args:
        out, x: (n, d_out) and (n, d_in), rows contiguous and any distance apart, without overlap.
        weight: (d_in, d_out) with any strides.
        bias: (d_out,) or None, not with `add`.

    Raises:
        ValueError, MemoryError: a wrong dtype, shape or layout; no memory.
    """
    _multiply(out, x, weight, bias, out if add else None, compiled=one_pass(weight.dtype) and x.numel() > 0)


class Elu(NamedTuple):
    """ELU and then dropout of rate p: key and ids (n,) as of `dropout`; p = 0 drops nothing."""

    ids: torch.Tensor
    key: int
    p: float


class Mask(NamedTuple):
    """Dropout alone, at a rate p above 0: ids, key, and part (n,) or None, as of `dropout`. With `one_pass` only."""

    ids: torch.Tensor
    key: int
    p: float
    part: torch.Tensor | None


#: Of both directions. With ELU, threshold and scale are dropout's, and there are no ids where nothing is dropped;
#: `entering` and `scratch`, for torch alone, are the Elu and memory to work in.
_COMMON = {
    "x": "narrow (rows, depth)",
    "weight": "strided sum of x (depth, width)",
    "ids": "optional int64 [rows]",
    "part": "optional contiguous type of weight [rows]",
    "entering": None,
    "scratch": None,
}


def _entered(a: Arguments) -> torch.Tensor:
    """The rows after ELU and dropout, in memory of scratch."""
    if a.entering is None:
        return a.x.to(a.weight.dtype)
    out = torch.empty_like(a.x) if a.scratch is None else a.scratch[0, : len(a.x)]
    elu_of(out, a.x)
    if a.entering.p:
        dropout(out, out, a.entering.ids, a.entering.key, a.entering.p)
    return out


@kernel(
    "hg_project",
    {"out": "written factors of weight as y (rows, width)", "bias": "optional type of weight as y_sums [width]"}
    | _COMMON,
    memory=_NO_MEMORY,
)
def _project(a: Arguments) -> None:
    multiply(a.out, _entered(a), a.weight)


@kernel(
    "hg_project_backward",
    {
        "gradient": "factors of weight as y (rows, width)",
        "gx": "optional written type of weight (rows, depth)",
        "g_weight": "written contiguous type of weight (depth, width)",
        "dots": "optional written type of x (rows, heads)",
        "bias": "optional type of x [depth]",
        "sums": "optional written type of x [depth]",
        "y_sums": "optional written type of weight [width]",
    }
    | _COMMON,
    memory=_NO_MEMORY,
)
def _project_backward(a: Arguments) -> None:
    gradient, entered = a.gradient.to(a.weight.dtype), _entered(a)
    if a.y_sums is not None:
        bias_gradient(a.y_sums, gradient)
    a.g_weight.addmm_(entered.t(), gradient)
    if a.gx is None:
        return
    if a.entering is None:
        multiply(a.gx, gradient, a.weight.t(), add=a.add)
        return
    product = torch.empty_like(a.x) if a.scratch is None else a.scratch[1, : len(a.x)]
    multiply(product, gradient, a.weight.t())
    if a.entering.p:
        dropout(product, product, a.entering.ids, a.entering.key, a.entering.p)
        entered.mul_(1 / kept_scale(a.entering.p))
    elu_gradient(a.gx, product, entered, a.x, a.dots, bias=a.bias, sums=a.sums, scaled=a.scaled)


def one_pass(dtype: torch.dtype, threads: int | None = None) -> bool:
    """Whether projections with weights of this type are made in one pass, which needs no memory of the caller's:
    neither for steps, nor, with float32, to widen rows of bfloat16. threads: of a process (None: of this one).
    """
    native, threads = library.load().native, threads or torch.get_num_threads()
    return native is not None and dtype == torch.float32 and threads >= native.own_products_from


def project(
    out: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    elu: Elu | Mask | None = None,
    scratch: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    add: bool = False,
) -> None:
    """out = x weight, dropout(ELU(x)) weight, or with a Mask dropout(x) weight; bias and add, without ELU, are as of
    `multiply`, and x may be narrower with a Mask.

    out (n, d_out) and x (n, d_in) are of one dtype, float32 or float64. Their rows are contiguous and any distance
    apart, without overlap. weight is (d_in, d_out) with any strides. scratch: (1, n or more, d_in) of working memory;
    None: allocated if needed. Raises ValueError for a wrong dtype, shape or layout, MemoryError.
    """
    if elu is None:
        multiply(out, x, weight, bias, add)
    else:
        _project(out=out, x=x, scratch=scratch, bias=bias, add=add, **_given(x, weight, out, elu))


def project_backward(
    gx: torch.Tensor | None,
    g_weight: torch.Tensor,
    x: torch.Tensor,
    gradient: torch.Tensor,
    weight: torch.Tensor,
    elu: Elu | Mask | None = None,
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
    more |= {"gx": gx, "g_weight": g_weight, "x": x, "gradient": gradient, "heads": heads_of(more.get("dots"))}
    _project_backward(**more, **_given(x, weight, gradient, elu))


def project_beside(
    out: torch.Tensor, parts: Sequence[tuple[torch.Tensor, torch.Tensor, Mask | None]], bias: torch.Tensor | None
) -> None:
    """out = the sum over one or two parts (x, weight, mask) of dropout(x) weight, plus bias, in one pass over the rows.

    It is summed in float32, and rounded once if out (n, d_out) is bfloat16. x may be narrower than float32. Only where
    `one_pass` of the weights, and where all matrices have elements. Raises the errors of `project`.
    """
    first, *others = ({"out": out, "x": x} | _given(x, weight, out, mask) for x, weight, mask in parts)
    for each in others:
        del each["compiled"]
    beside = [_project.filled(**each) for each in others]  # which stay until the call is done
    _project(**first, bias=bias, beside=beside[0] if beside else None)


def _given(x: torch.Tensor, weight: torch.Tensor, y: torch.Tensor, elu: Elu | Mask | None) -> dict[str, Any]:
    """The arguments that both directions have. y: the product or its gradient."""
    compiled = one_pass(weight.dtype) and x.numel() > 0 and y.numel() > 0
    given: dict[str, Any] = {"weight": weight, "compiled": compiled}
    if elu is None:
        return given
    threshold, scale = rule(elu.p)
    given |= {"elu": isinstance(elu, Elu), "entering": elu, "threshold": threshold, "scale": scale}
    if isinstance(elu, Mask) and threshold:
        given["part"] = elu.part
    return given | ({"ids": elu.ids, "key": elu.key} if threshold else {})
