"""Values of a run that never change, such as the aggregate of the features: computed at first use, then kept."""

from collections.abc import Callable
from typing import Any

import torch

from hpcgnn.comm.ledger import Ledger


class Constants(dict[str, Any]):
    """{name: tensor}. Called with (name, compute) it returns the value, and computes it at first use.

    The ledger books what that sends as `input`. trim: called after each computation, to release what the features were
    read from.
    """

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()
        self._ledger = ledger
        self.trim: Callable[[], object] = lambda: None

    def __call__(self, name: str, compute: Callable[[], torch.Tensor]) -> torch.Tensor:
        if name not in self:
            with torch.no_grad(), self._ledger.booked_as("input"):
                self[name] = compute()
            self.trim()
        return self[name]

    def named(self, suffix: str) -> Callable[[str, Callable[[], torch.Tensor]], torch.Tensor]:
        """The same store, with a suffix to all names."""
        return lambda name, compute: self(f"{name} {suffix}", compute)
