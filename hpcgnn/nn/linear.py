"""A linear map, and the initial weights of all layers from counter-based draws; takes dense rows or sparse features."""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from hpcgnn.ops.draws import Randomness
from hpcgnn.ops.layer_input import Input
from hpcgnn.ops.product import Map, product

#: (parameter of one or two dimensions, a): drawn from U(-a, a).
Bounded = tuple[torch.Tensor, float]


def glorot_bound(fan_in: int, fan_out: int) -> float:
    """a of U(-a, a) by Glorot and Bengio, AISTATS'10, eq. 16."""
    return math.sqrt(6 / (fan_in + fan_out))


class Linear(nn.Module):
    """x W + b. weight: (d_in, d_out), so that sparse features gather its rows; bias: (d_out,) or None.

    fan_in: inputs that its output sums up, where other maps are added to it (None: d_in). start: how PyG begins here:
    'torch', weight and bias as of torch.nn.Linear; 'glorot', a Glorot-uniform weight, and a zero bias; 'glorot and
    bias', the weight of the one and the bias of the other.
    """

    def __init__(
        self,
        d_in: int,
        d_out: int,
        bias: bool = True,
        dtype: torch.dtype | None = None,
        *,
        fan_in: int | None = None,
        start: str = "torch",
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(d_in, d_out, dtype=dtype))
        self.bias = nn.Parameter(torch.zeros(d_out, dtype=dtype)) if bias else None
        self._fan_in, self._start = fan_in or d_in, start

    def initial_bounds(self) -> list[Bounded]:
        """[(parameter, bound)] to initialise as PyG does."""
        bound = 1 / math.sqrt(max(1, self._fan_in))
        found: list[Bounded] = [(self.weight, bound if self._start == "torch" else glorot_bound(*self.weight.shape))]
        return found if self.bias is None or self._start == "glorot" else [*found, (self.bias, bound)]

    @property
    def map(self) -> Map:
        """(weight, bias), for `products`."""
        return self.weight, self.bias

    def forward(self, x: Input) -> torch.Tensor:
        return product(x, self.weight, self.bias)


def initialise(model: nn.Module, random: Randomness) -> None:
    """Set uniform weights, equal on all ranks for a seed. Unlisted parameters stay as they are: zero or one.

    Args:
        model: the model; its modules list their weights by the method `initial_bounds`.
        random: source of the draws.
    """
    modules: Iterable[Any] = model.modules()
    entries = [each for module in modules if hasattr(module, "initial_bounds") for each in module.initial_bounds()]
    # Biases come last, so that they shift no number of a weight.
    entries.sort(key=lambda entry: entry[0].dim() == 1)
    with torch.no_grad():
        for index, (parameter, bound) in enumerate(entries):
            shape = parameter.shape if parameter.dim() == 2 else (1, len(parameter))
            draws = random.uniform(shape, index)
            parameter.copy_(((2 * draws - 1) * bound).view(parameter.shape))
