"""Products of the rows of many nodes with a small matrix of weights: most of the arithmetic of an epoch.

torch has them from MKL and oneDNN on x86, which leave much of an AMD processor unused.
There the product of float32 is our own, and with AVX512-BF16 that of factors which `--matmul medium`
rounds. Elsewhere, and for other types, it is torch's. Gradients of weights, x' g, are in projection.py.
"""

import torch

from . import library
from .kernel import Arguments, kernel


@kernel(
    "hg_multiply",
    {
        "out": "written type of weight (rows, width)",
        "x": "number (rows, depth)",
        "weight": "strided weights of x (depth, width)",
        "bias": "optional type of weight [width]",
        "add": False,
        "rounded": False,
    },
    memory="a product: no memory for its weights",
)
def _multiply(a: Arguments) -> None:
    x = a.x.to(a.weight.dtype)
    if a.add:
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
    if bias is not None and add:
        raise ValueError("bias: expected None where the product is added")
    native = library.load().native
    rounded = None if native is None else native.factors(weight.dtype)
    _multiply(out, x, weight, bias, add, bool(rounded), compiled=rounded is not None)
