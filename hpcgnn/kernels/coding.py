"""Rows in int8 that are kept from the forward pass for the gradient, rounded at random; and back.

Each block of BLOCK columns of a row has a step (float32), a 126th of its largest magnitude. The code of 0 is 0. Any
other number has the code of its sign and of a level from 1 to 127: 1 + floor(|x| / step + u), with u from 16 bits of
the random word of the row's id and the column. Level l stands for l - 1 steps, and level 1 for a 2^24th of a step. So
rounding is unbiased, but for 2^-17 of a step, and no number changes its sign or becomes 0. ReLU and dropout, whose
gradients ask for zeros and signs alone, need no masks beside the codes.

A block with a number that is not finite has a step that is not, so that all its numbers are invalid.
"""

import torch

from . import checks
from .library import kernels
from .randomness import checked_key

#: Columns that share a step.
BLOCK = 256
_COMPUTED = (torch.float32, torch.float64)


def encode(codes: torch.Tensor, steps: torch.Tensor, x: torch.Tensor, ids: torch.Tensor, key: int) -> None:
    """Write the codes (n, F), int8, of x (n, F), float32 or float64, and the steps (n, ⌈F / BLOCK⌉) of their blocks.

    Args:
        codes, steps: where to write; steps are contiguous float32.
        x: the rows.
        ids: int64 (n,); with the columns they determine the random words.
        key: from `stream_key`.

    Raises:
        ValueError: a wrong dtype, shape, layout or key.
    """
    _check(codes, steps, x, "x")
    checks.vector("ids", ids, torch.int64, len(x))
    if x.shape[1]:
        kernels().encode(codes, steps, x, ids, checked_key(key))
        checks.written(codes)
        checks.written(steps)


def decode(out: torch.Tensor, codes: torch.Tensor, steps: torch.Tensor) -> None:
    """Write the rows (n, F) that `encode` wrote as codes and steps to out, float32 or float64. Raises ValueError as
    that does.
    """
    _check(codes, steps, out, "out")
    if out.shape[1]:
        kernels().decode(out, codes, steps)
        checks.written(out)


def _check(codes: torch.Tensor, steps: torch.Tensor, rows: torch.Tensor, name: str) -> None:
    checks.matrix(name, rows, _COMPUTED)
    checks.matrix("codes", codes, (torch.int8,), rows=len(rows), columns=rows.shape[1])
    checks.matrix("steps", steps, (torch.float32,), rows=len(rows), columns=-(-rows.shape[1] // BLOCK))
    if not steps.is_contiguous():
        raise ValueError(f"steps: expected contiguous rows, got strides {tuple(steps.stride())}")
