"""Rows in few bits in plain torch (see narrowing.py), for `reference.py`."""

import torch
from torch import Tensor

from .random_reference import random_words

_TINY = torch.finfo(torch.float32).tiny
_STEPS = 127  # of 8 bits, on either side of 0
_BLOCK = 256  # columns that share the step of their codes
_LEAST_STEP = 1e-30  # of codes: a 2^24th of it is not 0
_PIECE = 1 << 18  # numbers that are rounded at a time


def narrow(
    out: Tensor,
    factors: Tensor,
    x: Tensor,
    ids: Tensor,
    key: int,
    bits: int,
    index: Tensor | None,
    scale: Tensor | None,
) -> None:
    step = max(1, _PIECE // max(1, x.shape[1]))
    for first in range(0, len(ids) if x.shape[1] else 0, step):
        piece = slice(first, first + step)
        rows = x[piece] if index is None else x[index[piece].long()]
        if scale is not None:
            rows = rows * (scale[piece] if index is None else scale[index[piece].long()])[:, None]
        least, width = _factors(factors[piece], rows, bits)
        # float32 holds 24 bits exactly; 32 would round up to 1.
        draws = (random_words(key, ids[piece], x.shape[1]) >> 8).to(torch.float32).mul_(2.0**-24)
        _store(out[piece], _levels(rows, least, width, draws, bits), bits)


def _factors(factors: Tensor, x: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """Write the factors of rows x (m, F); returns (least, step), (m, 1) each, that levels are counted by."""
    if bits == 8:
        torch.div(x.abs().amax(1, keepdim=True), _STEPS, out=factors)
        wrong = ~x.isfinite().all(1, keepdim=True)
        factors.masked_fill_(wrong, torch.nan)
        return torch.zeros_like(factors, dtype=x.dtype), factors.to(x.dtype).clamp(min=_TINY)
    lowest, highest = x.aminmax(dim=1, keepdim=True)
    wrong = ~x.isfinite().all(1, keepdim=True)
    least = _rounded(lowest.masked_fill(wrong, torch.nan), factors.dtype, -1)
    step = _rounded((highest - least) / (2**bits - 1), factors.dtype, 1)
    factors[:, :1], factors[:, 1:] = least, step
    return least.to(x.dtype), step.to(x.dtype).clamp(min=_TINY)


def _levels(x: Tensor, least: Tensor, step: Tensor, draws: Tensor, bits: int) -> Tensor:
    """The levels (m, F) of rows x, by draws (m, F) in [0, 1)."""
    first, last = (-_STEPS, _STEPS) if bits == 8 else (0, 2**bits - 1)
    found = ((x - least) / step).add_(draws).floor_()
    return found.nan_to_num_(first).clamp_(first, last).to(torch.int8 if bits == 8 else torch.uint8)


def _store(out: Tensor, found: Tensor, bits: int) -> None:
    """Write levels (m, F) to the bytes out (m, B)."""
    if bits == 8:
        out.copy_(found)
        return
    out.zero_()
    for number, plane in enumerate(found.split(max(1, out.shape[1]), dim=1)):
        out[:, : plane.shape[1]] |= plane << (number * bits)


def widen(out: Tensor, narrow: Tensor, factors: Tensor, bits: int) -> None:
    if bits == 8:
        torch.mul(narrow, factors, out=out)
        return
    least, step = factors.to(out.dtype).split(1, dim=1)
    for number, plane in enumerate(out.split(max(1, narrow.shape[1]), dim=1)):
        found = (narrow[:, : plane.shape[1]] >> (number * bits)) & (2**bits - 1)
        torch.mul(found, step, out=plane).add_(least)


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


def _rounded(x: Tensor, kind: torch.dtype, up: int) -> Tensor:
    """x in a narrower type, rounded up (1) or down (-1)."""
    near = x.to(kind)
    further = torch.nextafter(near, torch.full_like(near, up * torch.inf))
    return torch.where(up * near.to(x.dtype) < up * x, further, near)
