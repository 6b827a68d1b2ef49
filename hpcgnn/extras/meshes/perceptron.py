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
        self._square = sum(a == b for a, b in itertools.pairwise(widths[1:]))

    @property
    def first(self) -> Any:
        """The first map, a Linear."""
        return self.linears[0]

    def rest(self, z: torch.Tensor) -> torch.Tensor:
        """What comes behind the first map, from its result z."""
        act, maps, norm = ACTIVATIONS[self.activation], list[Any](self.linears)[1:], self.norm
        if self._square and self.activation in _CHAINED:
            maps = maps[self._square :]
            z, norm = self._chain(z, None if maps else norm), norm if maps else None
        for linear in maps:
            z = linear(act(z))
        return z if norm is None else norm(z)

    def added(
        self, x: torch.Tensor, own: torch.Tensor, z: torch.Tensor, more: torch.Tensor | None = None
    ) -> torch.Tensor:
        """x + what comes behind the first map, of which x own is a part, and z and `more` are the others."""
        if self.activation in _CHAINED:
            return self._chain(z, self.norm, more, x, own)
        return x + self.rest(torch.addmm(z if more is None else z + more, x, own))

    def _chain(self, z: torch.Tensor, norm: nn.LayerNorm | None, *added: torch.Tensor | None) -> torch.Tensor:
        more, x, own = added or (None, None, None)
        scale, shift, epsilon = (None, None, 0.0) if norm is None else (norm.weight, norm.bias, norm.eps)
        maps = list[Any](self.linears)[1 : 1 + self._square]
        parameters = *(each.weight for each in maps), *(each.bias for each in maps)
        return _Chain.apply(self.activation == "elu", epsilon, z, more, x, own, scale, shift, *parameters)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.rest(self.first(x))


class _Chain(torch.autograd.Function):
    """See kernels.chain. others: more, x, own, scale, shift, or None for each; weights of the maps, biases."""

    @staticmethod
    def forward(
        ctx: Any,
        elu: bool,
        epsilon: float,
        z: torch.Tensor,
        *others: torch.Tensor | None,
    ) -> torch.Tensor:
        (more, x, own, scale, shift), parameters = others[:5], list[Any](others[5:])
        y, maps = torch.empty_like(z), len(parameters) // 2
        weights, biases = torch.cat(parameters[:maps]), torch.cat(parameters[maps:])
        given = {"x": x, "own": own, "scale": scale}
        kept = None
        if any(ctx.needs_input_grad):
            kept = z.new_empty(maps * len(z), z.shape[1])
            if scale is not None:
                given |= {"normal": torch.empty_like(y), "inverse": z.new_empty(len(z))}
        kernels.chain(y, z, weights, biases, kept, elu=elu, more=more, shift=shift, epsilon=epsilon, **given)
        ctx.save_for_backward(weights, kept, *given.values())
        ctx.elu, ctx.names, ctx.more = elu, [*given], more is not None
        return y

    @staticmethod
    def backward(ctx: Any, gy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (weights, kept, *rest), gy = ctx.saved_tensors, gy.contiguous()
        given = dict(zip(ctx.names, rest, strict=True))
        gx = None if given["x"] is None else torch.empty_like(gy)
        g_own = None if gx is None else torch.zeros_like(given["own"])
        g_norm = None if given["scale"] is None else gy.new_zeros(2, gy.shape[1])
        gz, g_weights, g_biases = torch.empty_like(gy), torch.zeros_like(weights), weights.new_zeros(len(weights))
        given |= {"gx": gx, "g_own": g_own, "g_norm": g_norm}
        kernels.chain_backward(gz, g_weights, g_biases, gy, weights, kept, elu=ctx.elu, **given)
        of_maps = *g_weights.split(weights.shape[1]), *g_biases.split(weights.shape[1])
        return (
            None,
            None,
            gz,
            gz if ctx.more else None,
            gx,
            g_own,
            *(g_norm if g_norm is not None else (None, None)),
            *of_maps,
        )
