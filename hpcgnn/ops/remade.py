"""The first two linear convolutions as one operator, which never has the output of the first as a whole.

The first convolution reads constants in order and no neighbours (constants.py), so a few rows of its output x cost a
product, forwards and backwards. The second sums neighbours of products instead of products of sums, for some of its
columns k at a time:

    z = x W_n[:, k]        y[:, k] = A(z) + x W_s[:, k] + b[k]

So z is all that must be there as a whole. x is made once for every BLOCK columns, and once for the gradients, which are
those of convolution.py: a tile of x, its gradient, and what goes from there to the first weights. Where a step keeps an
output of the first convolution, another second matrix, and its gradient, here are y and its gradient alone.

Or the forward pass makes x as a whole, as any convolution, and forgets it. So x is made once more, for the gradients
alone. The most that there is then is x and y, or y's gradient and the sums for rows with edges to other ranks.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from hpcgnn import kernels
from hpcgnn.memory.arena import Arena
from hpcgnn.ops.activation_dropout import ReluDropout
from hpcgnn.ops.constants import Constants
from hpcgnn.ops.convolution import Convolve
from hpcgnn.ops.row_tiles import Cast, in_rows, row_tiles, tile_rows

if TYPE_CHECKING:
    from hpcgnn.ops.linear_operator import LinearOperator

#: Columns of the second output that are made at a time.
BLOCK = 64


@dataclass(frozen=True)
class First:
    """The first convolution: x = activation(Σ_k dropout_k(x_k) W_k + b).

    Attributes:
        constants: its inputs, in memory, whose results are the inputs of the second convolution.
        activation: comes after it.
    """

    constants: Constants
    activation: ReluDropout


def convolve_remade(
    first: First,
    first_bias: torch.Tensor | None,
    first_weights: list[torch.Tensor],
    weights: tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None],
    operator: "LinearOperator",
    types: tuple[torch.dtype, torch.dtype],
    whole: bool = False,
) -> torch.Tensor:
    """y (m, d_out) = A(x) W_n + x W_s + b, differentiable in all weights. Collective.

    Args:
        first: makes x (n_p, d).
        first_bias, first_weights: of the first convolution: b, and W_k for each of its inputs.
        weights: (W_n (d, d_out), W_s or None, b or None).
        operator: A.
        types: dtypes of what is sent, and of y.
        whole: whether the forward pass has x as a whole.
    """
    return _Remade.apply(first, operator, types, whole, *weights, first_bias, *first_weights)


class Maker:
    """Makes some rows of x at a time."""

    def __init__(
        self, first: First, weights: list[torch.Tensor], bias: torch.Tensor | None, files: contextlib.ExitStack
    ) -> None:
        constants, arena = first.constants, first.constants.arena
        self._first, self._weights, self._bias = first, weights, bias
        self._tile = arena.empty(*_tile(constants.count, weights[0].shape[1]), dtype=constants.dtype)
        self._read: Callable[[slice], list[torch.Tensor]] = constants.reader(len(self._tile), files)
        self.parts: list[torch.Tensor] = []

    def __call__(self, rows: slice) -> torch.Tensor:
        """x of at most a tile of rows, valid until the next; `parts` are then the rows that it was made of."""
        out, self.parts = self._tile[: rows.stop - rows.start], self._read(rows)
        for number, (part, weight) in enumerate(zip(self.parts, self._weights, strict=True)):
            kernels.multiply(out, part, weight, None if number else self._bias, add=number > 0)
        self._first.activation.apply_(out, rows)
        return out


class _Remade(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        first: First,
        operator: "LinearOperator",
        types: tuple[torch.dtype, torch.dtype],
        whole: bool,
        neighbour: torch.Tensor,
        own: torch.Tensor | None,
        bias: torch.Tensor | None,
        first_bias: torch.Tensor | None,
        *first_weights: torch.Tensor,
    ) -> torch.Tensor:
        ctx.first, ctx.operator, ctx.has_bias, ctx.sent = first, operator, bias is not None, types[0]
        ctx.weights, ctx.first_weights, ctx.first_bias = (neighbour, own), list(first_weights), first_bias
        count, width, dtype = first.constants.count, neighbour.shape[1], neighbour.dtype
        if whole:
            x = _whole(first, ctx.first_weights, first_bias, operator, types[0])
            return Convolve.apply(x, neighbour, own, bias, operator, None, types[1])
        y = operator.empty_streamed(operator.num_outputs, width, types[1], transposed=True)
        picked = Picked(operator, neighbour.shape[0], dtype)
        with contextlib.ExitStack() as files:
            make = Maker(first, ctx.first_weights, first_bias, files)
            for start in range(0, width, BLOCK):
                k = slice(start, min(start + BLOCK, width))
                of_columns = neighbour[:, k], None if own is None else own[:, k], None if bias is None else bias[k]
                z = operator.empty_streamed(count, k.stop - k.start, types[0])
                write_columns(y[:, k], z, make, picked, operator, of_columns)
                del z  # its memory is the next one's
        return y

    @staticmethod
    def backward(ctx: Any, gy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        into = Gradients.of(ctx.weights, ctx.has_bias, ctx.first_weights, ctx.first_bias)
        weights = ctx.first_weights, ctx.first_bias, ctx.weights
        pass_back(ctx.first, ctx.operator, ctx.sent, in_rows(gy), weights, into)
        return None, None, None, None, into.neighbour, into.own, into.bias, into.first_bias, *into.first


@dataclass(frozen=True)
class Gradients:
    """Where gradients of the weights are added to: as `convolve_remade` has the weights."""

    neighbour: torch.Tensor
    own: torch.Tensor | None
    bias: torch.Tensor | None
    first: list[torch.Tensor]
    first_bias: torch.Tensor | None

    @staticmethod
    def of(
        weights: tuple[torch.Tensor, torch.Tensor | None],
        has_bias: bool,
        first: list[torch.Tensor],
        first_bias: torch.Tensor | None,
    ) -> "Gradients":
        """Zeros."""
        neighbour, own = weights
        return Gradients(
            neighbour.new_zeros(neighbour.shape),
            None if own is None else own.new_zeros(own.shape),
            torch.zeros_like(neighbour[0]) if has_bias else None,
            [torch.zeros_like(weight) for weight in first],
            None if first_bias is None else torch.zeros_like(first_bias),
        )


def pass_back(
    first: First,
    operator: "LinearOperator",
    narrowest: torch.dtype,
    gy: torch.Tensor,
    weights: tuple[list[torch.Tensor], torch.Tensor | None, tuple[torch.Tensor, torch.Tensor | None]],
    into: Gradients,
) -> None:
    """Add the gradients of all weights for that of the second output, gy (m, d_out). Collective.

    Args:
        first, operator: as of `convolve_remade`.
        narrowest: dtype of what is sent.
        gy: rows contiguous.
        weights: (W_k, b of the first convolution, (W_n, W_s)).
        into: where to add.
    """
    first_weights, first_bias, (neighbour, own) = weights
    wider = gy.element_size() > narrowest.itemsize
    sent = operator.empty_streamed(len(gy), gy.shape[1], narrowest, transposed=True).copy_(gy) if wider else gy
    parts = operator.parts(sent, transposed=True)
    arena, dtype = operator.arena, neighbour.dtype
    picked, gradients = Picked(operator, neighbour.shape[0], dtype), Cast(arena, gy, dtype)
    shape = _tile(first.constants.count, neighbour.shape[0])
    spare, apart = _of(arena, shape, dtype), _of(arena, shape, dtype) if picked.some else None
    if into.bias is not None:
        for rows in row_tiles(len(gy)):
            kernels.bias_gradient(into.bias, gradients.read(gy[rows]))
    with contextlib.ExitStack() as files:
        make = Maker(first, first_weights, first_bias, files)
        for rows, t in (tile for part in parts for tile in part.tiles()):
            x = make(rows)
            gx = spare[: len(x)]
            kernels.project_backward(gx, into.neighbour, x, t, neighbour)
            if own is not None and into.own is not None:  # both or none
                mine, chosen = picked(rows, x)
                picked.project(gx, (own, into.own), chosen, gradients.read(gy[mine]), apart)
            first.activation.gradient(gx, x, out=gx)
            summed = into.first_bias  # once
            for part, g_weight, weight in zip(make.parts, into.first, first_weights, strict=True):
                kernels.project_backward(None, g_weight, part, gx, weight, y_sums=summed)
                summed = None


def _whole(
    first: First,
    weights: list[torch.Tensor],
    bias: torch.Tensor | None,
    operator: "LinearOperator",
    dtype: torch.dtype,
) -> torch.Tensor:
    """x (n_p, d) in a type."""
    x = operator.empty_streamed(first.constants.count, weights[0].shape[1], dtype)
    with contextlib.ExitStack() as files:
        make = Maker(first, weights, bias, files)
        for rows in row_tiles(len(x)):
            x[rows] = make(rows)
    return x


def write_columns(
    y: torch.Tensor,
    z: torch.Tensor,
    make: Maker,
    picked: "Picked",
    operator: "LinearOperator",
    weights: tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None],
) -> None:
    """Write some columns y (m, k) of the result. z: memory (n_p, k); weights: these columns of W_n, of W_s and of b, or
    None for both of these.
    """
    neighbour, own, bias = weights
    products, results = (Cast(operator.arena, each, neighbour.dtype) for each in (z, y))
    for rows in row_tiles(len(z)):
        x = make(rows)
        products.write(z[rows], lambda out, x=x: kernels.multiply(out, x, neighbour))  # type: ignore[misc]
        if own is not None:
            mine, chosen = picked(rows, x)
            results.write(y[mine], lambda out, x=chosen: kernels.multiply(out, x, own, bias))  # type: ignore[misc]
    add_sums(y, z, operator, own, bias)


def add_sums(
    y: torch.Tensor, z: torch.Tensor, operator: "LinearOperator", own: torch.Tensor | None, bias: torch.Tensor | None
) -> None:
    """y += A(z) where own rows are in y already, else y = A(z) + b. Collective."""
    for rows, sums in (tile for part in operator.parts(z) for tile in part.tiles()):
        if own is not None:
            y[rows] += sums
        elif bias is None:
            y[rows] = sums
        else:
            torch.add(sums, bias, out=y[rows])


class Picked:
    """The rows of a tile of x that an operator computes."""

    def __init__(self, operator: "LinearOperator", width: int, dtype: torch.dtype) -> None:
        self._operator, self.some = operator, operator.outputs is not None
        self._memory = _of(operator.arena, _tile(operator.num_outputs, width), dtype) if self.some else None
        self.places: torch.Tensor | None = None

    def __call__(self, rows: slice, x: torch.Tensor) -> tuple[slice, torch.Tensor]:
        """(which computed rows they are, the rows); `places` are then their places in the tile."""
        mine, self.places = self._operator.outputs_of(rows)
        if self.places is None or self._memory is None:  # both or none
            return mine, x
        return mine, torch.index_select(x, 0, self.places, out=self._memory[: len(self.places)])

    def project(
        self,
        gx: torch.Tensor,
        own: tuple[torch.Tensor, torch.Tensor],
        chosen: torch.Tensor,
        gy: torch.Tensor,
        apart: torch.Tensor | None,
        g_bias: torch.Tensor | None = None,
    ) -> None:
        """Add what the rows of the last call have of gradients: to gx of the tile, and to those of W_s and b.

        Args:
            gx: gradients of the tile, added to.
            own: (W_s, its gradient, added to).
            chosen, gy: the rows, and the gradients of their results.
            apart: memory of a tile, or None where all rows are computed.
            g_bias: added to, or None.
        """
        weight, g_weight = own
        if apart is None or self.places is None:  # both or none
            kernels.project_backward(gx, g_weight, chosen, gy, weight, y_sums=g_bias, add=True)
        else:
            kernels.project_backward(apart[: len(chosen)], g_weight, chosen, gy, weight, y_sums=g_bias)
            kernels.add_rows(gx, self.places, apart[: len(chosen)], distinct=True)


def _tile(rows: int, width: int) -> tuple[int, int]:
    """The shape of a tile of a matrix."""
    return min(tile_rows(), rows), width


def _of(arena: Arena, shape: tuple[int, int], dtype: torch.dtype) -> torch.Tensor:
    return arena.empty(*shape, dtype=dtype)
