"""Rows in int8 that are kept from the forward pass for the gradient, rounded at random; and back.

Each block of BLOCK columns of a row has a step (float32), a 126th of its largest magnitude. The code of 0 is 0. Any
other number has the code of its sign and of a level from 1 to 127: 1 + floor(|x| / step + u), with u from 16 bits of
the random word of the row's id and the column. Level l stands for l - 1 steps, and level 1 for a 2^24th of a step. So
rounding is unbiased, but for 2^-17 of a step, and no number changes its sign or becomes 0. ReLU and dropout, whose
gradients ask for zeros and signs alone, need no masks beside the codes.

A block with a number that is not finite has a step that is not, so that all its numbers are invalid.
"""

import torch

from .kernel import Arguments, kernel
from .randomness import checked_key, random_words

#: Columns that share a step.
BLOCK = 256
_LEAST_STEP = 1e-30  # a 2^24th of it is not 0
_STEPS = "contiguous float32 (num, blocks)"


@kernel(
    "hg_encode",
    {
        "codes": "written int8 (num, width)",
        "steps": f"written {_STEPS}",
        "x": "float (num, width)",
        "ids": "int64 [num]",
        "key": ...,
        "blocks": ...,
    },
)
def _encode(a: Arguments) -> None:
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
    _encode(codes, steps, x, ids, checked_key(key), -(-x.shape[-1] // BLOCK))


@kernel(
    "hg_decode",
    {"out": "written float (num, width)", "codes": "int8 (num, width)", "steps": _STEPS, "blocks": ...},
)
def _decode(a: Arguments) -> None:
    sign = a.codes.sign().float()
    level = (a.codes - sign) + sign * 2.0**-24
    a.out.copy_(level.mul_(a.steps.repeat_interleave(BLOCK, 1)[:, : a.out.shape[1]]))


def decode(out: torch.Tensor, codes: torch.Tensor, steps: torch.Tensor) -> None:
    """Write the rows (n, F) that `encode` wrote as codes and steps to out, float32 or float64. Raises ValueError as
    that does.
    """
    _decode(out, codes, steps, -(-out.shape[-1] // BLOCK))
