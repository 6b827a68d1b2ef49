"""Rows in 8 bits for each number, rounded at random, for messages; and back.

Levels go from -127 to 127. The row's factor is the step (float32), a 127th of its largest magnitude. Rounding is
unbiased (AdaQP, Wan et al., MLSys'23): the level is floor(x / step + u). u in [0, 1) are 24 bits of the random word of
the row's id and the column (randomness.py).

A row with a number that is not finite has a factor that is not finite, so that all its numbers are invalid.
"""

import torch

from .kernel import Arguments, kernel
from .randomness import checked_key, random_words

_TINY = torch.finfo(torch.float32).tiny
_LEVELS = 127  # on either side of 0
_PIECE = 1 << 18  # numbers that torch rounds at a time


@kernel(
    "hg_narrow",
    {
        "out": "written int8 (num, width)",
        "factors": "written float32 (num, 1)",
        "x": "float (rows, width)",
        "ids": "int64 [num]",
        "key": ...,
        "index": "optional int32 [num]",
        "scale": "optional type of x [rows]",
    },
    without=(("index", "rows", "num", "x"),),
)
def _narrow(a: Arguments) -> None:
    step = max(1, _PIECE // max(1, a.x.shape[1]))
    for first in range(0, len(a.ids) if a.x.shape[1] else 0, step):
        piece = slice(first, first + step)
        rows = a.x[piece] if a.index is None else a.x[a.index[piece].long()]
        if a.scale is not None:
            rows = rows * (a.scale[piece] if a.index is None else a.scale[a.index[piece].long()])[:, None]
        factors = a.factors[piece]
        torch.div(rows.abs().amax(1, keepdim=True), _LEVELS, out=factors)
        factors.masked_fill_(~rows.isfinite().all(1, keepdim=True), torch.nan)
        width = factors.to(a.x.dtype).clamp(min=_TINY)
        # float32 holds 24 bits exactly; 32 would round up to 1.
        draws = (random_words(a.key, a.ids[piece], a.x.shape[1]) >> 8).to(torch.float32).mul_(2.0**-24)
        levels = (rows / width).add_(draws).floor_().nan_to_num_(-_LEVELS).clamp_(-_LEVELS, _LEVELS)
        a.out[piece] = levels.to(torch.int8)


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
    _narrow(out, factors, x, ids, checked_key(key), index, scale)


@kernel(
    "hg_widen",
    {
        "out": "written float (num, width)",
        "narrow": "int8 (num, width)",
        "factors": "float32 (num, 1)",
    },
)
def widen(a: Arguments) -> None:
    """Write the rows (m, F) that `narrow` wrote as narrow and factors to out."""
    torch.mul(a.narrow, a.factors, out=a.out)
