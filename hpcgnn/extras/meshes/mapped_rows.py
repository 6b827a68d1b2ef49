"""Rows from rows of the same number. Only the inputs are kept.

Hidden rows exist for a tile, and the gradient makes them again. All large matrices are of the arena.
"""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from hpcgnn import kernels
from hpcgnn.memory.arena import Arena
from hpcgnn.ops.operator_context import differentiable
from hpcgnn.ops.product import product_in
from hpcgnn.ops.propagate import Remade
from hpcgnn.ops.row_functions import RowFunction, Rows, add_row_gradients, parameters_of, result_of, tile_bytes


def map_rows(arena: Arena, function: RowFunction, *inputs: torch.Tensor) -> torch.Tensor:
    """function(*inputs): (n, F) from inputs (n, …), differentiably, where a row of it depends on its own rows alone.

    arena: of the result and of the gradients of inputs.

    Raises ValueError if the function uses a tensor that was computed from parameters outside of it.
    """
    example, parameters = parameters_of(function, inputs)
    assert isinstance(example, torch.Tensor), "the function makes one matrix"
    return differentiable(_RowMap(arena, function, len(inputs), example), *inputs, *parameters)


@dataclass(frozen=True)
class _RowMap:
    """given: how many inputs there are. example: the result for no rows."""

    arena: Arena
    function: RowFunction
    given: int
    example: torch.Tensor

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        """See `differentiable`."""
        inputs, parameters = tensors[: self.given], tensors[self.given :]
        y = self.arena.empty(len(inputs[0]), *self.example.shape[1:], dtype=self.example.dtype)
        for rows in self._tiles(inputs):
            result_of(self.function, [(x[rows], None) for x in inputs], parameters, y[rows])
        return y, tensors

    def backward(self, gy: torch.Tensor, wanted: Sequence[bool], *tensors: torch.Tensor) -> list[torch.Tensor | None]:
        """See `differentiable`."""
        inputs, parameters, gy = tensors[: self.given], tensors[self.given :], gy.contiguous()
        sums = [
            None if not w else self.arena.empty_like(x) if k < self.given else torch.zeros_like(x)
            for k, (x, w) in enumerate(zip(tensors, wanted, strict=True))
        ]
        for rows in self._tiles(inputs):

            def given(result: torch.Tensor | None, back: torch.Tensor = gy[rows]) -> Any:
                return (back, None) if result is None else back

            taken: list[Rows] = [(x[rows], None) for x in inputs]
            out = [None if x is None else x[rows] for x in sums[: self.given]]
            add_row_gradients(self.function, taken, parameters, sums, given, out)
        return sums

    def _tiles(self, inputs: Sequence[torch.Tensor]) -> Iterator[slice]:
        """Rows whose inputs and results take what those of a tile of edges may take: a tile is much Python, too."""
        width = sum(x[:1].numel() for x in (*inputs, self.example.new_empty(1, *self.example.shape[1:])))
        step = max(1, tile_bytes(self.function) // (max(1, width) * self.example.element_size()))
        return (slice(first, first + step) for first in range(0, len(inputs[0]), step))


def products(
    arena: Arena, x: torch.Tensor, first: torch.Tensor, second: torch.Tensor, bias: torch.Tensor
) -> tuple[torch.Tensor, Remade, Remade]:
    """(x, x first, x second + bias) of rows x (n, F) and weights (F, F'), differentiably.

    Only one function of rows whose sum of gradients is its own, such as `map_rows`, may read the x that is returned:
    the gradients by the products are added to its gradient in place.
    """
    same, *made = differentiable(_Products(arena), x, first, second, bias)
    given = (arena, x.detach(), first.detach(), None), (arena, x.detach(), second.detach(), bias.detach())
    one, other = (Remade(y, functools.partial(product_in, *each)) for y, each in zip(made, given, strict=True))
    return same, one, other


@dataclass(frozen=True)
class _Products:
    arena: Arena

    def forward(
        self, x: torch.Tensor, first: torch.Tensor, second: torch.Tensor, bias: torch.Tensor
    ) -> tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]:
        """See `differentiable`."""
        made = product_in(self.arena, x, first), product_in(self.arena, x, second, bias)
        return (x, *made), (x, first, second)

    def backward(
        self, gy: Sequence[torch.Tensor | None], wanted: Sequence[bool], x: torch.Tensor, *weights: torch.Tensor
    ) -> list[torch.Tensor | None]:
        """See `differentiable`."""
        (gx, *of_products), found = gy, [torch.zeros_like(weight) for weight in weights]
        add, of_bias = gx is not None, torch.zeros_like(weights[1][0])
        if wanted[0] and gx is None:
            gx = self.arena.empty_like(x)
        for weight, g_weight, g, sums in zip(weights, found, of_products, (None, of_bias), strict=True):
            assert g is not None, "both products are read"
            kernels.project_backward(gx, g_weight, x, g.contiguous(), weight, y_sums=sums, add=add)
            add = True
        return [gx, *found, of_bias]
