"""Operations between two layers, in one pass over the rows: ELU, its gradient and ReLU's, and the gradient of a bias.

torch's own ELU takes longer, for more digits than the result can hold. Layers of attention need an inner product per
head with each gradient, and the sums of its columns (see ops/attention_layer.py). Both come from the same pass.
"""

from typing import Any

import torch

from .interface import SUMMED_ROWS
from .kernel import Arguments, kernel


def _partial(a: Arguments) -> torch.Tensor | None:
    """Memory for the column sums of gy, share by share."""
    return None if a.sums is None else a.gy.new_zeros(-(-len(a.gy) // SUMMED_ROWS), a.gy.shape[1])


@kernel("hg_elu", {"out": "written type of x (rows, width)", "x": "float (rows, width)"})
def elu(a: Arguments) -> None:
    """out = x where x > 0, else exp(x) - 1 (Clevert et al., ICLR'16, α = 1), to an absolute error of 1e-7 (float32).

    out may be x itself, but must not overlap it otherwise.
    """
    a.out.copy_(torch.where(a.x > 0, a.x, torch.exp(a.x.clamp_max(0)) - 1))


@kernel(
    "hg_elu_gradient",
    {
        "out": "written type of gy (rows, heads * head_width)",
        "gy": "float (rows, heads * head_width)",
        "y": "optional type of gy (rows, heads * head_width)",
        "x": "optional type of gy (rows, heads * head_width)",
        "dots": "optional written type of gy (rows, heads)",
        "bias": "optional type of gy [heads * head_width]",
        "sums": "optional written type of gy [heads * head_width]",
        "scaled": False,
        "heads": 1,
    },
    scratch={"partial": _partial},
)
def _elu_gradient(a: Arguments) -> None:
    gradient = a.gy if a.y is None else a.gy * torch.where(a.y > 0, torch.ones_like(a.y), a.y + 1)
    if a.sums is not None:
        a.sums += gradient.sum(0)
    if a.scaled and a.dots is not None:
        gradient = (gradient.unflatten(1, (a.heads, -1)) * a.dots[..., None]).flatten(1)
    if a.dots is not None:
        product = gradient * (a.x if a.bias is None else a.x - a.bias)
        a.dots.copy_(product.unflatten(1, (a.heads, -1)).sum(2))
    a.out.copy_(gradient)


def heads_of(dots: torch.Tensor | None, width: int) -> int:
    """The number of columns of `dots`, which divides the width; 1 where there are none."""
    if dots is None:
        return 1
    heads = dots.shape[-1] if dots.dim() else 0
    if heads < 1 or width % heads:
        raise ValueError(f"dots: expected as many columns as divide {width}, got {heads}")
    return heads


def elu_gradient(
    out: torch.Tensor,
    gy: torch.Tensor,
    y: torch.Tensor | None,
    x: torch.Tensor | None = None,
    dots: torch.Tensor | None = None,
    **more: Any,
) -> None:
    """out = gy where y > 0, else gy (y + 1): the gradient of ELU's input x, from its result y. y of None: out = gy,
    without ELU.

    A layer of attention below needs two further results of its output's gradient, if they are not None. They are
    dots[i, h] = <out_i, x_i - bias> of head h, and sums (F,) += the sums of out's columns. Dots are summed in the order
    of `attend_backward`'s <gy, z>, to the same bits if x - bias is that z. No result depends on the number of threads.

    Args:
        out, gy, y, x: (n, F) of one dtype, float32 or float64, rows contiguous; out may be one of the others.
        dots: (n, H) of the same dtype, H a divisor of F, or None; it needs x.
        more: bias (F,), or None for zeros, only for dots; sums, or None; and `scaled`: after the sums, each head of out
            is multiplied by the previous value of its dots.

    Raises:
        ValueError: a wrong dtype, shape or layout.
    """
    if dots is None:
        x = None
        if more.get("scaled"):
            raise ValueError("scaled: expected dots with it, which hold the factors")
    elif x is None:
        raise ValueError("x: expected a torch tensor with dots, got None")
    _elu_gradient(out, gy, y, x, dots, heads=heads_of(dots, gy.shape[-1]), **more)


@kernel(
    "hg_relu_gradient",
    {
        "out": "written type of y (rows, width)",
        "gradient": "sum of y (rows, width)",
        "y": "number (rows, width)",
        "scale": 1.0,
    },
)
def relu_gradient(a: Arguments) -> None:
    """out = 0 where y <= 0, else scale * gradient: the gradient of the input of ReLU and of dropout by this scale.

    y is their result: it is 0 where the unit was off or dropped. out may be y itself, or gradient if that has its
    dtype.
    """
    a.out.copy_(torch.where(a.y <= 0, 0, a.gradient * a.scale))


@kernel(
    "hg_bias_gradient",
    {"sums": "written type of gy [width]", "gy": "float (rows, width)"},
    scratch={"partial": _partial},
)
def bias_gradient(a: Arguments) -> None:
    """sums (F,) += the sums of gy's columns (n, F). The result depends on no number of threads."""
    a.sums += a.gy.sum(0)
