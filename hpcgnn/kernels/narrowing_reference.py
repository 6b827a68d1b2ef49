"""Rows in 8 bits in plain torch (see narrowing.py), for `reference.py`."""

import torch
from torch import Tensor

from .random_reference import random_words

_TINY = torch.finfo(torch.float32).tiny
_STEPS = 127  # on either side of 0
_BLOCK = 256  # columns that share the step of their codes
_LEAST_STEP = 1e-30  # of codes: a 2^24th of it is not 0
_PIECE = 1 << 18  # numbers that are rounded at a time


def narrow(
    out: Tensor,
    factors: Tensor,
    x: Tensor,
    ids: Tensor,
    key: int,
    index: Tensor | None,
    scale: Tensor | None,
) -> None:
    step = max(1, _PIECE // max(1, x.shape[1]))
    for first in range(0, len(ids) if x.shape[1] else 0, step):
        piece = slice(first, first + step)
        rows = x[piece] if index is None else x[index[piece].long()]
        if scale is not None:
            rows = rows * (scale[piece] if index is None else scale[index[piece].long()])[:, None]
        torch.div(rows.abs().amax(1, keepdim=True), _STEPS, out=factors[piece])
        factors[piece].masked_fill_(~rows.isfinite().all(1, keepdim=True), torch.nan)
        width = factors[piece].to(x.dtype).clamp(min=_TINY)
        # float32 holds 24 bits exactly; 32 would round up to 1.
        draws = (random_words(key, ids[piece], x.shape[1]) >> 8).to(torch.float32).mul_(2.0**-24)
        out[piece] = (rows / width).add_(draws).floor_().nan_to_num_(-_STEPS).clamp_(-_STEPS, _STEPS).to(torch.int8)


def widen(out: Tensor, narrow: Tensor, factors: Tensor) -> None:
    torch.mul(narrow, factors, out=out)


def encode(codes: Tensor, steps: Tensor, x: Tensor, ids: Tensor, key: int) -> None:
    for block, first in enumerate(range(0, x.shape[1], _BLOCK)):
        part = x[:, first : first + _BLOCK]
        step = (part.abs().amax(1).float() / 126).clamp_(min=_LEAST_STEP)  # NaN stays NaN
        steps[:, block] = step.masked_fill_(~part.isfinite().all(1), torch.nan)
        words = random_words(key, ids, (x.shape[1] + 7) // 8 * 4)[:, first // 2 :]
        halves = torch.stack([words & 0xFFFF, words >> 16], 2).flatten(1)[:, : part.shape[1]]
        draws = (halves.to(x.dtype) + 0.5) * 2.0**-16
        level = (part.abs() / steps[:, block, None].to(x.dtype)).add_(draws).nan_to_num_(126).clamp_(max=126).floor_()
        codes[:, first : first + _BLOCK] = (level + 1) * part.sign().nan_to_num_(0)


def decode(out: Tensor, codes: Tensor, steps: Tensor) -> None:
    sign = codes.sign().float()
    level = (codes - sign) + sign * 2.0**-24
    out.copy_(level.mul_(steps.repeat_interleave(_BLOCK, 1)[:, : out.shape[1]]))
