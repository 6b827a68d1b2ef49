"""Products of the rows of many nodes with a small matrix of weights, which is most of the arithmetic of an epoch.

torch has them from MKL on x86, which leaves something of an AMD processor with AVX2 unused (`jobs/bench/products.py` measures
it). There the product of float32 is our own; elsewhere (with AVX-512, too, where ours has not been measured), for other types,
and where `--matmul medium` rounds factors, it is torch's. So are the gradients of weights, x' g, but for those of projection.py.
"""

import torch

from . import checks
from .library import kernels

_TYPES = (torch.float32, torch.float64, torch.bfloat16)


def multiply(
    out: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, add: bool = False
) -> None:
    """out = x weight + bias, or with `add` out += x weight.

    out (n, d_out) and x (n, d_in) of one dtype, rows contiguous and any distance apart, and not overlapping each other; weight
    (d_in, d_out) with any strides, bias (d_out,) or None, not with `add`. Float32 is summed in float32. It is no operation of
    autograd's: to be called where gradients are not recorded. Raises ValueError for a wrong dtype, shape or layout, MemoryError.
    """
    checks.matrix("x", x, _TYPES)
    checks.matrix("out", out, (x.dtype,), rows=x.shape[0])
    checks.weights(weight, x, out.shape[1])
    checks.vector("bias", bias, x.dtype, out.shape[1], optional=True)
    if bias is not None and add:
        raise ValueError("bias: expected None where the product is added")
    kernels().multiply(out, x, weight, bias, add)
    checks.written(out)
