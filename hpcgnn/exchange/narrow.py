"""Numbers in fewer bits than in computing, for the time of their travel.

bf16 is rounded to the nearest. int8 is between ± the largest of its row, and rounded at random (kernels/coding.py).
The place in the run keys the draws, so a run can be repeated.
"""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Narrow:
    """One kind of narrow numbers.

    Attributes:
        type: their dtype.
        at_random: whether they are rounded at random, with a factor (float32) of their row.
    """

    type: torch.dtype
    at_random: bool = False

    @property
    def factor_bytes(self) -> int:
        """Bytes of the factor of a row."""
        return torch.float32.itemsize * self.at_random


#: name of --halo-dtype -> the kind; fp32 stands for the run's own precision.
NARROW: dict[str, Narrow | None] = {"fp32": None, "bf16": Narrow(torch.bfloat16), "int8": Narrow(torch.int8, True)}


def rounds_at_random(name: str) -> bool:
    """Whether this --halo-dtype rounds at random."""
    kind = NARROW[name]
    return kind is not None and kind.at_random
