"""Perceptrons of many rows: linear maps with an activation in between, and layer norm at the end.

The maps from hidden rows to hidden rows are one call of a kernel with ReLU or ELU (kernels/chain.py). For the gradient
it keeps all hidden rows, so a perceptron is for a tile of rows (ops/row_functions.py).
"""

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from hpcgnn import kernels
from hpcgnn.nn.linear import Linear

ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": functional.relu,
    "elu": functional.elu,
    "gelu": functional.gelu,
    "silu": functional.silu,
    "tanh": torch.tanh,
}
#: What the kernel knows.
_CHAINED = ("relu", "elu")


class Perceptron(nn.Module):
    """forward(x (n, d_in)) -> (n, d_out).

    widths: of the input, of hidden rows, of the output. norm: whether layer norm follows.
    """

    def __init__(self, widths: list[int], activation: str, dtype: torch.dtype, norm: bool = True) -> None:
        super().__init__()
        self.linears = nn.ModuleList(Linear(a, b, dtype=dtype) for a, b in itertools.pairwise(widths))
        self.norm = nn.LayerNorm(widths[-1], dtype=dtype) if norm else None
        self.activation = activation

    @property
    def first(self) -> Any:
        """The first map, a Linear."""
        return self.linears[0]

    def rest(self, z: torch.Tensor) -> torch.Tensor:
        """What comes behind the first map, from its result z."""
        act, maps = ACTIVATIONS[self.activation], list[Any](self.linears)[1:]
        square = [each for each in maps if each.weight.shape[0] == each.weight.shape[1]]
        if square and self.activation in _CHAINED:
            weights, biases = (torch.cat([getattr(each, name) for each in square]) for name in ("weight", "bias"))
            z, maps = _Chain.apply(z, weights, biases, self.activation == "elu"), maps[len(square) :]
        for linear in maps:
            z = linear(act(z))
        return z if self.norm is None else self.norm(z)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.rest(self.first(x))


class _Chain(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: torch.Tensor, weights: torch.Tensor, biases: torch.Tensor, elu: bool) -> torch.Tensor:
        y, maps = torch.empty_like(z), len(weights) // max(1, z.shape[1])
        kept = z.new_empty(maps * len(z), z.shape[1]) if any(ctx.needs_input_grad) else None
        kernels.chain(y, z, weights, biases, kept, elu=elu)
        ctx.save_for_backward(weights, kept)
        ctx.elu = elu
        return y

    @staticmethod
    def backward(ctx: Any, gy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        weights, kept = ctx.saved_tensors
        gz, g_weights, g_biases = torch.empty_like(gy), torch.zeros_like(weights), weights.new_zeros(len(weights))
        kernels.chain_backward(gz, g_weights, g_biases, gy.contiguous(), weights, kept, elu=ctx.elu)
        return gz, g_weights, g_biases, None
