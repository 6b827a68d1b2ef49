"""Products of the rows of many nodes with a small matrix of weights: most of the arithmetic of an epoch.

torch has them from MKL and oneDNN on x86, which leave much of an AMD processor unused.
There the product of float32 is our own, and with AVX512-BF16 that of factors which `--matmul medium`
rounds. Elsewhere, and for other types, it is torch's. Gradients of weights, x' g, are in projection.py.
"""

import torch

from . import checks
from .library import kernels

_TYPES = (torch.float32, torch.float64, torch.bfloat16)


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
    checks.matrix("x", x, _TYPES)
    checks.matrix("out", out, _TYPES, rows=x.shape[0])
    checks.weights(weight, x, out.shape[1])
    checks.matrix("out", out, (weight.dtype,))
    checks.vector("bias", bias, weight.dtype, out.shape[1], optional=True)
    if bias is not None and add:
        raise ValueError("bias: expected None where the product is added")
    kernels().multiply(out, x, weight, bias, add)
    checks.written(out)
