"""What a linear aggregation is to a layer, however its rows are exchanged."""

from collections.abc import Iterator
from typing import Any

import torch

from hpcgnn.ops.convolution import Convolve
from hpcgnn.ops.streams import BufferedStream

#: (rows, what an operator makes of them).
Tiled = tuple[slice, torch.Tensor]


class LinearOperator:
    """y = A x of own rows, with its adjoint. Collective in both directions.

    arena: Arena for large tensors; outputs: int32 (m,), increasing, the own rows that are computed; None: all, m = n_p.
    A subclass has `multiply`, `multiply_transposed` and `tiles`.
    """

    def __init__(self, stream: BufferedStream, outputs: torch.Tensor | None = None) -> None:
        self.arena, self.outputs, self._own = stream.buffers.arena, outputs, stream.own

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Aggregate own rows x (n_p, F) -> (m, F), differentiably."""
        return _Aggregate.apply(x, self)

    def convolution(self, d_in: int, d_out: int) -> type[torch.autograd.Function]:
        """The function y = A(x) W_n + x W_s + b for weights (d_in, d_out); its arguments are those of `Convolve`."""
        return Convolve

    def empty_streamed(self, rows: int, width: int, dtype: torch.dtype, transposed: bool = False) -> torch.Tensor:
        """An uninitialised tensor (rows, width) that A, or Aᵀ, is going to be applied to. By all ranks alike."""
        return self.arena.empty(rows, width, dtype=dtype)

    def multiply(self, x: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """A x without autograd, into `out` if it is given."""
        raise NotImplementedError

    def multiply_transposed(self, gy: torch.Tensor) -> torch.Tensor:
        """Aᵀ gy without autograd."""
        raise NotImplementedError

    def tiles(self, x: torch.Tensor, transposed: bool = False, y: torch.Tensor | None = None) -> Iterator[Tiled]:
        """An iterator of (rows, A x of these rows (or Aᵀ x)): all own rows, some at a time. Collective: exhaust it.

        What it yields is valid only until the next. The memory that it takes is taken before it returns. y: where sums
        of its shape and type may be kept; the caller may write to the rows that it has been given.
        """
        raise NotImplementedError

    @property
    def num_outputs(self) -> int:
        """m."""
        return self._own.num_rows

    def outputs_of(self, rows: slice) -> tuple[slice, torch.Tensor | None]:
        """(slice of the computed rows that are among own rows `rows`, a slice; where each stands there, None: at its
        place).
        """
        if self.outputs is None:
            return rows, None
        first, last = torch.searchsorted(
            self.outputs, torch.tensor([rows.start, rows.stop], dtype=torch.int32)
        ).tolist()
        return slice(first, last), self.outputs[first:last] - rows.start


class _Aggregate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, operator: LinearOperator) -> torch.Tensor:
        ctx.operator = operator
        return operator.multiply(x)

    @staticmethod
    def backward(ctx: Any, gy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return ctx.operator.multiply_transposed(gy), None
