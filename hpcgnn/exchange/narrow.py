"""Numbers in fewer bits than they are computed with, for the time of their travel.

bf16 and fp16 are rounded to the nearest. The whole numbers are rounded at random, up with a probability that makes the
mean right (as AdaQP does: Wan et al., MLSys'23), by draws that follow from what they are for, so that a run can be
repeated. int8 is between ± the largest of its row. int4 and int2 are between the least and the largest of their row:
what has passed a ReLU needs no levels below zero, and zeros stay zeros.
"""

from dataclasses import dataclass

import torch

from hpcgnn import kernels

_LEVELS = 127
_TINY = torch.finfo(torch.float32).tiny


@dataclass(frozen=True)
class Narrow:
    """One kind of narrow numbers. bits: of a number; type: of what holds them; factor, factors: type and number of the
    factors beside each row, which only what is rounded at random has.
    """

    bits: int
    type: torch.dtype
    factor: torch.dtype = torch.float32
    factors: int = 0

    @property
    def at_random(self) -> bool:
        """Whether numbers are rounded at random, with factors of their row."""
        return self.factors > 0

    @property
    def factor_bytes(self) -> int:
        """Bytes of the factors of a row."""
        return self.factors * self.factor.itemsize

    def numbers(self, columns: int) -> int:
        """Numbers of `type` that hold so many columns of a row."""
        return -(-columns * self.bits // (8 * self.type.itemsize))


#: name of --halo-dtype -> the kind; fp32 stands for the run's own precision.
NARROW: dict[str, Narrow | None] = {
    "fp32": None,
    "bf16": Narrow(16, torch.bfloat16),
    "fp16": Narrow(16, torch.float16),
    "int8": Narrow(8, torch.int8, torch.float32, 1),
    "int4": Narrow(4, torch.uint8, torch.bfloat16, 2),
    "int2": Narrow(2, torch.uint8, torch.bfloat16, 2),
    # What no narrower kind has been chosen for (widths.py).
    "auto": Narrow(8, torch.int8, torch.float32, 1),
}


def rounds_at_random(name: str) -> bool:
    """Whether this --halo-dtype rounds at random."""
    kind = NARROW[name]
    return kind is not None and kind.at_random


def round_at_random(
    kind: Narrow, out: torch.Tensor, factors: torch.Tensor, x: torch.Tensor, ids: torch.Tensor, draw: int
) -> None:
    """Write rows x (m, F) as numbers out (m, kind.numbers(F)) and their factors (m, kind.factors).

    ids: int64 (m,); draw: key. What they draw decides which of its two neighbours a number becomes: x in the mean.
    """
    # 24 bits are what float32 holds exactly; 32 would round up to 1.
    draws = (kernels.random_words(draw, ids, x.shape[1]) >> 8).to(torch.float32).mul_(2.0**-24)
    if kind.bits == 8:
        torch.div(x.abs().amax(1, keepdim=True), _LEVELS, out=factors)
        levels = x / factors.clamp(min=_TINY)
        out.copy_(levels.add_(draws).floor_().clamp_(-_LEVELS, _LEVELS))
        return
    most = 2**kind.bits - 1
    lowest, highest = x.aminmax(dim=1, keepdim=True)
    # The levels reach as far as the row does, whichever way its factors are rounded.
    least = _rounded(lowest, kind.factor, -1)
    step = _rounded((highest - least) / most, kind.factor, 1)
    factors[:, :1], factors[:, 1:] = least, step
    levels = (x - least) / step.to(x.dtype).clamp(min=_TINY)
    _store(out, levels.add_(draws).floor_().clamp_(0, most).to(torch.uint8), kind.bits)


def squared_ranges(kind: Narrow, factors: torch.Tensor) -> float:
    """The sum over rows of (their largest number less their least)², as far as their factors (m, kind.factors) say."""
    ranges = factors.double().mul_(2 * _LEVELS) if kind.bits == 8 else factors[:, 1].double().mul_(2**kind.bits - 1)
    return float(ranges.square_().sum())


def widen(kind: Narrow, out: torch.Tensor, narrow: torch.Tensor, factors: torch.Tensor) -> None:
    """out (m, F) from what `round_at_random` wrote."""
    if kind.bits == 8:
        torch.mul(narrow, factors, out=out)
        return
    least, step = factors.to(out.dtype).split(1, dim=1)
    for number, plane in enumerate(out.split(max(1, narrow.shape[1]), dim=1)):
        levels = (narrow[:, : plane.shape[1]] >> (number * kind.bits)) & (2**kind.bits - 1)
        torch.mul(levels, step, out=plane).add_(least)


def _store(out: torch.Tensor, levels: torch.Tensor, bits: int) -> None:
    """Several levels (m, F) to a byte (m, B): column c in byte c mod B, so that columns side by side stay so."""
    width = out.shape[1]
    out.zero_()
    for number, plane in enumerate(levels.split(max(1, width), dim=1)):
        out[:, : plane.shape[1]] |= plane << (number * bits)


def _rounded(x: torch.Tensor, kind: torch.dtype, up: int) -> torch.Tensor:
    """x in a narrower type, rounded up (1) or down (-1)."""
    near = x.to(kind)
    further = torch.nextafter(near, torch.full_like(near, up * torch.inf))
    return torch.where(up * near.to(x.dtype) < up * x, further, near)
