"""Rows in 8 bits for each number, rounded at random, and back: for messages, and to keep for the gradient.

In messages (`narrow`, `widen`) levels go from -127 to 127. The row's factor is the step (float32), a 127th of its
largest magnitude. Rounding is unbiased (AdaQP, Wan et al., MLSys'23): the level is floor(x / step + u). u in [0, 1) are
24 bits of the random word of the row's id and the column (randomness.py).

Of what is kept (`encode`, `decode`) each block of BLOCK columns of a row has a step (float32), a 126th of its largest
magnitude. The code of 0 is 0. Any other number has the code of its sign and of a level from 1 to 127: 1 + floor(|x| /
step + u), with u from 16 bits of the random word of the row's id and the column. Level l stands for l - 1 steps, and
level 1 for a 2^24th of a step. So rounding is unbiased, but for 2^-17 of a step, and no number changes its sign or
becomes 0. ReLU and dropout, whose gradients ask for zeros and signs alone, need no masks beside the codes.

A row or block with a number that is not finite has such a factor or step, so that all its numbers are invalid.
"""

import torch

from .kernel import Arguments, kernel
from .randomness import random_words

#: Columns that share a step of what is kept.
BLOCK = 256
_LEAST_STEP = 1e-30  # a 2^24th of it is not 0
_STEPS = f"contiguous float32 (num, (width + {BLOCK - 1}) // {BLOCK})"
_TINY = torch.finfo(torch.float32).tiny
_LEVELS = 127  # on either side of 0
_PIECE = 1 << 18  # numbers that torch rounds at a time


@kernel(
    "hg_narrow",
    {
        "out": "written int8 (num, width)",
        "factors": "written float32 (num, 1)",
        "x": "float (num, width)",
        "ids": "int64 [num]",
        "key": 0,
    },
)
def narrow(a: Arguments) -> None:
    """Write the rows of x (m, F), float32 or float64, as out and their factors.

    out is (m, F) int8 and factors (m, 1) float32. ids (m,) int64 and key, from `stream_key`, determine the random
    words.
    """
    step = max(1, _PIECE // max(1, a.x.shape[1]))
    for first in range(0, len(a.ids) if a.x.shape[1] else 0, step):
        piece = slice(first, first + step)
        rows = a.x[piece]
        factors = a.factors[piece]
        torch.div(rows.abs().amax(1, keepdim=True), _LEVELS, out=factors)
        factors.masked_fill_(~rows.isfinite().all(1, keepdim=True), torch.nan)
        width = factors.to(a.x.dtype).clamp(min=_TINY)
        # float32 holds 24 bits exactly; 32 would round up to 1.
        draws = (random_words(a.key, a.ids[piece], a.x.shape[1]) >> 8).to(torch.float32).mul_(2.0**-24)
        levels = (rows / width).add_(draws).floor_().nan_to_num_(-_LEVELS).clamp_(-_LEVELS, _LEVELS)
        a.out[piece] = levels.to(torch.int8)


@kernel(
    "hg_widen",
    {"out": "written float (num, width)", "narrow": "int8 (num, width)", "factors": "float32 (num, 1)"},
)
def widen(a: Arguments) -> None:
    """Write the rows (m, F) that `narrow` wrote as narrow and factors to out."""
    torch.mul(a.narrow, a.factors, out=a.out)


@kernel(
    "hg_encode",
    {
        "codes": "written int8 (num, width)",
        "steps": f"written {_STEPS}",
        "x": "float (num, width)",
        "ids": "int64 [num]",
        "key": 0,
    },
)
def encode(a: Arguments) -> None:
    """Write the codes (n, F), int8, of x (n, F), float32 or float64, and the steps (n, ⌈F / BLOCK⌉) of their blocks.

    ids (n,) int64 and key, from `stream_key`, determine the random words, with the columns.
    """
    for block, first in enumerate(range(0, a.x.shape[1], BLOCK)):
        part = a.x[:, first : first + BLOCK]
        step = (part.abs().amax(1).float() / 126).clamp_(min=_LEAST_STEP)  # NaN stays NaN
        a.steps[:, block] = step.masked_fill_(~part.isfinite().all(1), torch.nan)
        words = random_words(a.key, a.ids, (a.x.shape[1] + 7) // 8 * 4)[:, first // 2 :]
        halves = torch.stack([words & 0xFFFF, words >> 16], 2).flatten(1)[:, : part.shape[1]]
        draws = (halves.to(a.x.dtype) + 0.5) * 2.0**-16
        level = (part.abs() / a.steps[:, block, None].to(a.x.dtype)).add_(draws)
        level.nan_to_num_(126).clamp_(max=126).floor_()
        a.codes[:, first : first + BLOCK] = (level + 1) * part.sign().nan_to_num_(0)


@kernel("hg_decode", {"out": "written float (num, width)", "codes": "int8 (num, width)", "steps": _STEPS})
def decode(a: Arguments) -> None:
    """Write the rows (n, F) that `encode` wrote as codes and steps to out, float32 or float64."""
    sign = a.codes.sign().float()
    level = (a.codes - sign) + sign * 2.0**-24
    a.out.copy_(level.mul_(a.steps.repeat_interleave(BLOCK, 1)[:, : a.out.shape[1]]))
