"""The bits of narrowed numbers, turn by turn, for the least noise within a budget: --halo-dtype auto.

Rounding at random to levels that are r / (2^b - 1) apart adds a variance of (r / (2^b - 1))² / 6 to a number, where r
is the range of its row. The noise of a turn is the sum over its rows, in shares of the sum of r² over the turns of its
stream. So streams count alike, however large their numbers are. Within one the rows with large numbers get more bits
(AdaQP weighs messages likewise: Wan et al., MLSys'23). All turns begin with the fewest bits. Then the turn where one
more byte saves the most noise gets its next width, until the budget is spent.

Ranges are of an earlier epoch: the first, which is sent with the most bits, and the epochs before 2, 4, 8, 16, … (from
0). Widths are chosen anew in these.
"""

import heapq
import logging
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import torch

from hpcgnn.comm import Communicator
from hpcgnn.exchange.narrow import NARROW, Narrow

log = logging.getLogger("hpcgnn")

#: Kinds to choose from, by bits.
KINDS = ("int2", "int4", "int8")


class Item(NamedTuple):
    """A turn of the number-th stream of an epoch. back: whether it is of the returns."""

    stream: int
    back: bool
    turn: int


class Widths:
    """The width of each turn. bits: bits of a number of the halo in the mean of all ranks, from 2 to 8.

    Streams and turns come in the same order in every epoch, on all ranks.
    """

    def __init__(self, comm: Communicator, bits: float) -> None:
        self._comm, self._bits = comm, bits
        self._chosen: dict[Item, str] = {}
        self._sums: dict[Item, tuple[float, float]] = {}

    def begin_epoch(self, epoch: int) -> None:
        """Choose widths, where the epoch is one in which they are. Collective."""
        if self._sums and epoch & (epoch - 1) == 0:
            items = sorted(self._sums)
            sums = torch.tensor([self._sums[item] for item in items], dtype=torch.float64)
            ranges, numbers = self._comm.allreduce_(sums, "control").numpy().T
            self._chosen = dict(zip(items, chosen(items, ranges, numbers, self._bits), strict=True))
            if self._comm.rank == 0:
                counts = Counter(self._chosen.values())
                log.info(
                    "turns of the halo by their numbers: %s", ", ".join(f"{counts[kind]} {kind}" for kind in KINDS)
                )
        self._sums = {}

    def of(self, item: Item) -> Narrow | None:
        """The kind of numbers of a turn."""
        return NARROW[self._chosen.get(item, KINDS[-1])]

    def note(self, item: Item, ranges: float, numbers: int) -> None:
        """Add this rank's part of a turn: the sum over rows of r², and numbers."""
        before = self._sums.get(item, (0.0, 0.0))
        self._sums[item] = before[0] + ranges, before[1] + numbers

    def state(self) -> dict[str, torch.Tensor]:
        """The state for a resumed run."""
        chosen = [[*item, KINDS.index(kind)] for item, kind in self._chosen.items()]
        noted = [[*item, *sums] for item, sums in self._sums.items()]
        return {
            "chosen": torch.tensor(chosen, dtype=torch.int64).reshape(-1, 4),
            "noted": torch.tensor(noted, dtype=torch.float64).reshape(-1, 5),
        }

    def load_state(self, tensors: dict[str, torch.Tensor]) -> None:
        """Continue from the result of `state` on the same rank."""
        for stream, back, turn, kind in tensors["chosen"].tolist():
            self._chosen[Item(stream, bool(back), turn)] = KINDS[kind]
        for stream, back, turn, ranges, numbers in tensors["noted"].tolist():
            self._sums[Item(int(stream), bool(back), int(turn))] = ranges, numbers


def chosen(items: Iterable[Item], ranges: np.ndarray, numbers: np.ndarray, bits: float) -> list[str]:
    """The kind of each item within a mean of `bits` per number. Deterministic.

    ranges: (n,), the sum of r² over its rows. numbers: (n,), its count of numbers.
    """
    streams = [item[:2] for item in items]
    total = dict.fromkeys(streams, 0.0)
    for stream, each in zip(streams, ranges.tolist(), strict=True):
        total[stream] += each
    share = [
        each / total[stream] if total[stream] else 0.0 for stream, each in zip(streams, ranges.tolist(), strict=True)
    ]
    widths = [_bits(kind) for kind in KINDS]
    spare = (bits - widths[0]) * float(numbers.sum())
    level = [0] * len(share)
    waiting: list[tuple[float, int]] = []

    def offer(index: int) -> None:
        if level[index] + 1 < len(widths) and numbers[index]:
            now, then = widths[level[index]], widths[level[index] + 1]
            saved = share[index] * (_noise(now) - _noise(then))
            heapq.heappush(waiting, (-saved / (float(numbers[index]) * (then - now)), index))

    for index in range(len(share)):
        offer(index)
    while waiting:
        _, index = heapq.heappop(waiting)
        cost = float(numbers[index]) * (widths[level[index] + 1] - widths[level[index]])
        if cost <= spare:
            spare -= cost
            level[index] += 1
            offer(index)
    return [KINDS[each] for each in level]


def _bits(kind: str) -> int:
    found = NARROW[kind]
    assert found is not None
    return found.bits


def _noise(bits: int) -> float:
    return 1.0 / (2**bits - 1) ** 2
