"""A linear map with Glorot initialisation from counter-based draws; takes dense rows or sparse features."""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from hpcgnn.nn.graph import DroppedRows
from hpcgnn.ops.draws import Randomness

#: (parameter of two dimensions, fan in, fan out).
Glorot = tuple[torch.Tensor, int, int]


class Linear(nn.Module):
    """x W + b. weight: (d_in, d_out), so that sparse features gather its rows; bias: (d_out,) or None."""

    def __init__(self, d_in: int, d_out: int, bias: bool = True, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(d_in, d_out, dtype=dtype))
        self.bias = nn.Parameter(torch.zeros(d_out, dtype=dtype)) if bias else None

    def glorot(self) -> list[Glorot]:
        """[(parameter of two dimensions, fan in, fan out)] to initialise."""
        return [(self.weight, *self.weight.shape)]

    def forward(self, x: torch.Tensor | DroppedRows) -> torch.Tensor:
        if self.bias is None:
            return x @ self.weight
        if isinstance(x, torch.Tensor):
            return torch.addmm(self.bias, x, self.weight)  # one pass over the output instead of two
        return (x @ self.weight).add_(self.bias)


def initialise(model: nn.Module, random: Randomness) -> None:
    """Set Glorot-uniform weights (Glorot and Bengio, AISTATS'10, eq. 16), equal on all ranks for a seed.

    Modules with a method `glorot` list their weights for it. Other parameters are zero or one.
    """
    modules: Iterable[Any] = model.modules()
    weights = [entry for module in modules if hasattr(module, "glorot") for entry in module.glorot()]
    with torch.no_grad():
        for index, (weight, fan_in, fan_out) in enumerate(weights):
            weight.copy_((2 * random.uniform(weight.shape, index) - 1) * math.sqrt(6 / (fan_in + fan_out)))
