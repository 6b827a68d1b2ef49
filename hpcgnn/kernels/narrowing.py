"""Rows in 8 bits for each number, rounded at random, for messages; and back.

Levels go from -127 to 127. The row's factor is the step (float32), a 127th of its largest magnitude. Rounding is
unbiased (AdaQP, Wan et al., MLSys'23): the level is floor(x / step + u). u in [0, 1) are 24 bits of the random word of
the row's id and the column (randomness.py).

A row with a number that is not finite has a factor that is not finite, so that all its numbers are invalid.
"""

import torch

from . import checks
from .library import kernels
from .randomness import checked_key

_COMPUTED = (torch.float32, torch.float64)


def narrow(
    out: torch.Tensor,
    factors: torch.Tensor,
    x: torch.Tensor,
    ids: torch.Tensor,
    key: int,
    index: torch.Tensor | None = None,
    scale: torch.Tensor | None = None,
) -> None:
    """Write rows index[i] of x (i without one), times their scale, as rows i of out and their factors.

    out is (m, F) int8 and factors (m, 1) float32. x is (n, F) float32 or float64. ids (m,) int64 and key, from
    `stream_key`, determine the random words. index is (m,) int32 in [0, n), not checked; scale (n,) of x's dtype.
    Raises ValueError for a wrong dtype, shape, layout or key.
    """
    rows = x.shape[0] if index is None else index.shape[0]
    _check(out, factors, x, rows, "x")
    checks.vector("ids", ids, torch.int64, rows)
    checks.vector("index", index, torch.int32, None, optional=True)
    checks.vector("scale", scale, x.dtype, x.shape[0], optional=True)
    kernels().narrow(out, factors, x, ids, checked_key(key), index, scale)
    checks.written(out)
    checks.written(factors)


def widen(out: torch.Tensor, narrow: torch.Tensor, factors: torch.Tensor) -> None:
    """Write the rows (m, F) that `narrow` wrote as narrow and factors to out, float32 or float64. Raises ValueError as
    that does.
    """
    _check(narrow, factors, out, out.shape[0], "out")
    kernels().widen(out, narrow, factors)
    checks.written(out)


def _check(narrow: torch.Tensor, factors: torch.Tensor, rows: torch.Tensor, num: int, name: str) -> None:
    checks.matrix(name, rows, _COMPUTED)
    checks.matrix("narrow", narrow, (torch.int8,), rows=num, columns=rows.shape[1])
    checks.matrix("factors", factors, (torch.float32,), rows=num, columns=1)
