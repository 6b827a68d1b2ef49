"""Operations between two layers, in one pass over the rows: ELU, its gradient and ReLU's, and the gradient of a bias.

torch's own ELU takes longer, for more digits than the result can hold. Layers of attention need an inner product per
head with each gradient, and the sums of its columns (see ops/attention_layer.py). Both come from the same pass.
"""

import torch

from . import checks
from .library import kernels

_TYPES = (torch.float32, torch.float64)


def elu(out: torch.Tensor, x: torch.Tensor) -> None:
    """out = x where x > 0, else exp(x) - 1 (Clevert et al., ICLR'16, α = 1), to an absolute error of 1e-7 (float32).

    out and x (n, F) of one dtype, float32 or float64, rows contiguous; out may be x itself, but must not overlap it
    otherwise. Raises ValueError for a wrong dtype, shape or layout.
    """
    checks.matrix("x", x, _TYPES)
    checks.matrix("out", out, (x.dtype,), rows=x.shape[0], columns=x.shape[1])
    kernels().elu(out, x)
    checks.written(out)


def elu_gradient(
    out: torch.Tensor,
    gy: torch.Tensor,
    y: torch.Tensor | None,
    x: torch.Tensor | None = None,
    dots: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    sums: torch.Tensor | None = None,
    scaled: bool = False,
) -> None:
    """out = gy where y > 0, else gy (y + 1): the gradient of ELU's input x, from its result y. y of None: out = gy,
    without ELU.

    A layer of attention below needs two further results of its output's gradient, if they are not None. They are
    dots[i, h] = <out_i, x_i - bias> of head h, and sums (F,) += the sums of out's columns. Dots are summed in the order
    of `attend_backward`'s <gy, z>, to the same bits if x - bias is that z. No result depends on the number of threads.

    Args:
        out, gy, y, x: (n, F) of one dtype, float32 or float64, rows contiguous; out may be one of the others.
        dots: (n, H) of the same dtype, H a divisor of F, or None; it needs x.
        bias: (F,), or None for zeros; only for dots.
        scaled: after the sums, each head of out is multiplied by the previous value of its dots.

    Raises:
        ValueError: a wrong dtype, shape or layout.
    """
    checks.matrix("gy", gy, _TYPES)
    given = {"out": out} | ({} if y is None else {"y": y}) | ({} if dots is None else {"x": x})
    for name, tensor in given.items():
        checks.matrix(name, tensor, (gy.dtype,), rows=gy.shape[0], columns=gy.shape[1])
    for name, tensor in (("bias", bias), ("sums", sums)):
        checks.vector(name, tensor, gy.dtype, gy.shape[1], optional=True)
    if dots is not None:
        checks.heads("dots", dots, gy)
    elif scaled:
        raise ValueError("scaled: expected dots with it, which hold the factors")
    kernels().elu_gradient(out, gy, y, None if dots is None else x, dots, bias, sums, bool(scaled))
    for written in (out, dots, sums):
        if written is not None:
            checks.written(written)


def relu_gradient(out: torch.Tensor, gradient: torch.Tensor, y: torch.Tensor, scale: float = 1.0) -> None:
    """out = 0 where y <= 0, else scale * gradient: the gradient of the input of ReLU and of dropout by this scale.

    y is their result: it is 0 where the unit was off or dropped.
    out and y are (n, F) of one dtype, float32, float64 or bfloat16. gradient has the same dtype, or float32 for
    bfloat16. Rows are contiguous. out may be y itself, or gradient if that has its dtype. Raises ValueError for a wrong
    dtype, shape or layout.
    """
    checks.matrix("y", y, checks.FLOATS)
    checks.matrix("out", out, (y.dtype,), *y.shape)
    checks.matrix("gradient", gradient, (checks.accumulation_dtype(y.dtype),), *y.shape)
    kernels().relu_gradient(out, gradient, y, scale)
    checks.written(out)


def bias_gradient(sums: torch.Tensor, gy: torch.Tensor) -> None:
    """sums (F,) += the sums of gy's columns. The result depends on no number of threads.

    gy (n, F), float32 or float64, rows contiguous. Raises ValueError for a wrong dtype, shape or layout.
    """
    checks.matrix("gy", gy, _TYPES)
    checks.vector("sums", sums, gy.dtype, gy.shape[1])
    kernels().bias_gradient(sums, gy)
    checks.written(sums)
