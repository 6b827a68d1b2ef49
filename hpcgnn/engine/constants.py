"""Values of a run that never change, such as the aggregate of the features: computed at first use, then kept."""

from collections.abc import Callable
from typing import Any

import torch

from hpcgnn.comm.ledger import Ledger


class Constants(dict[str, Any]):
    """A cache of named tensors. A call with (name, compute) returns the tensor, and computes it on first use.

    The ledger books the traffic of a computation as `input`.

    Attributes:
        trims: called after each computation, to release the source of the features, and memory that training would cut
            into pieces.
    """

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()
        self._ledger = ledger
        self.trims: list[Callable[[], object]] = []

    def __call__(self, name: str, compute: Callable[[], torch.Tensor]) -> torch.Tensor:
        if name not in self:
            with torch.no_grad(), self._ledger.booked_as("input"):
                self[name] = compute()
            for trim in self.trims:
                trim()
        return self[name]

    def named(self, suffix: str) -> Callable[[str, Callable[[], torch.Tensor]], torch.Tensor]:
        """The same store, with a suffix to all names."""
        return lambda name, compute: self(f"{name} {suffix}", compute)
