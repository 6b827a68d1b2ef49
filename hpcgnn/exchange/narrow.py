"""Numbers in fewer bits than in computing, for the time of their travel.

bf16 is rounded to the nearest. The whole numbers are rounded at random (kernels/narrowing.py). Their place in
the run keys the draws, so a run can be repeated. int8 is between ± the largest of its row. int4 and int2 are between
the least and the largest of their row: after a ReLU no levels below zero are needed, and zeros stay zeros.
"""

from dataclasses import dataclass

import torch

from hpcgnn.kernels.narrowing import BITS


@dataclass(frozen=True)
class Narrow:
    """One kind of narrow numbers.

    Attributes:
        bits: bits of a number.
        type: dtype that holds them.
        factor, factors: dtype and number of each row's factors, for numbers rounded at random.
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
        """Numbers of `type` that hold the columns of a row."""
        return -(-columns * self.bits // (8 * self.type.itemsize))


#: name of --halo-dtype -> the kind; fp32 stands for the run's own precision.
NARROW: dict[str, Narrow | None] = {
    "fp32": None,
    "bf16": Narrow(16, torch.bfloat16),
    "int8": Narrow(8, *BITS[8]),
    "int4": Narrow(4, *BITS[4]),
    "int2": Narrow(2, *BITS[2]),
}


def rounds_at_random(name: str) -> bool:
    """Whether this --halo-dtype rounds at random."""
    kind = NARROW[name]
    return kind is not None and kind.at_random
