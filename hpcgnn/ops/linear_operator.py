"""A layer's view of a linear aggregation, for any exchange of its rows."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from hpcgnn import kernels
from hpcgnn.ops.convolution import Convolve
from hpcgnn.ops.row_tiles import row_tiles
from hpcgnn.ops.streams import BufferedStream


class Part(NamedTuple):
    """An operator's result for consecutive own rows: `rows`, a slice, and their sums, or a function that makes them.
    memory: (tile, F), where that is done, or None: it is never needed; lent: whether sums stand where the caller
    writes.
    """

    rows: slice
    aggregate: kernels.Aggregate
    memory: torch.Tensor | None = None
    lent: bool = False

    def tiles(self) -> Iterator[tuple[slice, torch.Tensor]]:
        """(rows, sums), some rows at a time; valid until the next."""
        for rows in row_tiles(self.rows.stop, self.rows.start):
            at, of = slice(rows.start - self.rows.start, rows.stop - self.rows.start), self.aggregate
            if isinstance(of, torch.Tensor):
                sums = of[at]
                if self.lent and self.memory is not None:
                    sums = self.memory[: len(sums)].copy_(sums)
            else:
                assert self.memory is not None, "sums that are made stand somewhere"
                sums = self.memory[: at.stop - at.start]
                x, indptr, indices, weight, source_scale, row_scale = of
                kernels.gather(
                    sums,
                    x,
                    indptr[at.start : at.stop + 1],
                    indices,
                    weight=weight,
                    source_scale=source_scale,
                    row_scale=None if row_scale is None else row_scale[at],
                )
            yield rows, sums


class LinearOperator:
    """y = A x of own rows, with its adjoint. Collective in both directions.

    arena: Arena for large tensors; outputs: int32 (m,), increasing, the own rows that are computed; None: all, m = n_p.
    A subclass has `multiply`, `multiply_transposed` and `parts`.
    """

    def __init__(self, stream: BufferedStream, outputs: torch.Tensor | None = None) -> None:
        self.arena, self.outputs, self._own = stream.buffers.arena, outputs, stream.own

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Aggregate own rows x (n_p, F) -> (m, F), differentiably."""
        return _Aggregate.apply(x, self)

    def convolution(self, d_in: int, d_out: int) -> type[torch.autograd.Function]:
        """The function y = A(x) W_n + x W_s + b for weights (d_in, d_out). For its arguments see `Convolve`."""
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

    def parts(self, x: torch.Tensor, transposed: bool = False, y: torch.Tensor | None = None) -> Iterator[Part]:
        """An iterator of the Parts of A x (or Aᵀ x): all own rows, some at a time. Collective: exhaust it.

        The memory that it takes is taken before it returns.

        Args:
            x: own rows.
            transposed: whether along the edges reversed.
            y: where sums of its shape and type may be kept; the caller may write to the rows that it has been given.
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
