"""Rows from rows of the same number. Only the inputs are kept.

Hidden rows exist for a tile, and the gradient makes them again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from hpcgnn.ops.operator_context import differentiable
from hpcgnn.ops.row_functions import RowFunction, Rows, add_row_gradients, parameters_of, result_of, tile_bytes


def map_rows(function: RowFunction, *inputs: torch.Tensor) -> torch.Tensor:
    """function(*inputs): (n, F) from inputs (n, …), differentiably, where a row of it depends on its own rows alone.

    Raises ValueError if the function uses a tensor that was computed from parameters outside of it.
    """
    example, parameters = parameters_of(function, inputs)
    assert isinstance(example, torch.Tensor), "the function makes one matrix"
    return differentiable(_RowMap(function, len(inputs), example), *inputs, *parameters)


@dataclass(frozen=True)
class _RowMap:
    """given: how many inputs there are. example: the result for no rows."""

    function: RowFunction
    given: int
    example: torch.Tensor

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        """See `differentiable`."""
        inputs, parameters = tensors[: self.given], tensors[self.given :]
        y = self.example.new_empty(len(inputs[0]), *self.example.shape[1:])
        for rows in self._tiles(inputs):
            y[rows] = result_of(self.function, [(x[rows], None) for x in inputs], parameters)
        return y, tensors

    def backward(self, gy: torch.Tensor, wanted: Sequence[bool], *tensors: torch.Tensor) -> list[torch.Tensor | None]:
        """See `differentiable`."""
        inputs, parameters, gy = tensors[: self.given], tensors[self.given :], gy.contiguous()
        sums = [torch.zeros_like(x) if w else None for x, w in zip(tensors, wanted, strict=True)]
        for rows in self._tiles(inputs):

            def given(result: torch.Tensor | None, back: torch.Tensor = gy[rows]) -> Any:
                return (back, None) if result is None else back

            taken: list[Rows] = [(x[rows], None) for x in inputs]
            found = add_row_gradients(self.function, taken, parameters, sums, given)
            for total, g in zip((x for x in sums[: self.given] if x is not None), found, strict=True):
                total[rows] = g
        return sums

    def _tiles(self, inputs: Sequence[torch.Tensor]) -> Iterator[slice]:
        """Rows whose inputs and results take what those of a tile of edges may take: a tile is much Python, too."""
        width = sum(x[:1].numel() for x in (*inputs, self.example.new_empty(1, *self.example.shape[1:])))
        step = max(1, tile_bytes(self.function) // (max(1, width) * self.example.element_size()))
        return (slice(first, first + step) for first in range(0, len(inputs[0]), step))
