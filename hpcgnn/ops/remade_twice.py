"""The first three linear convolutions as one operator, which never has the outputs of the first two as a whole.

Some columns k of the second output are made as remade.py makes them. The third convolution is linear in them, so that
their share of its products is added, and they are let go:

    s = Σ_k x2[:, k] W_n[k]        y = A(s) + Σ_k x2[:, k] W_s[k] + b

The gradients ask for the same columns again, with the messages that make them. The gradient of x2[:, k] is made of the
gradient of y and of A^T of it, which are narrow in a last layer, and goes on to the first two layers from there.
What goes to the first weights is linear in it but for fixed zeros, so columns add up. Two matrices of BLOCK columns and
two of y's shape are then all that a step has.
"""

import contextlib
import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from hpcgnn import kernels
from hpcgnn.memory.arena import Arena
from hpcgnn.ops.activation_dropout import ReluDropout
from hpcgnn.ops.remade import First, Gradients, Maker, Picked, add_sums, pass_back, write_columns
from hpcgnn.ops.row_tiles import Cast, in_rows, read_type, row_tiles, tile_rows

if TYPE_CHECKING:
    from hpcgnn.ops.linear_operator import LinearOperator

#: Columns of the second output that are there at a time, and of one in 16 bits: the fewer, the less memory and the more
#: arithmetic.
BLOCK, NARROW_BLOCK = 56, 40


def twice_bytes(width: int, dtype: torch.dtype) -> int:
    """Bytes of a step for a node, with a third output of this width."""
    return 2 * _columns(dtype) * dtype.itemsize + 2 * width * dtype.itemsize


def _columns(kept: torch.dtype) -> int:
    return NARROW_BLOCK if kept.itemsize == 2 else BLOCK


@dataclass(frozen=True)
class Above:
    """A convolution above the first: operator: A. sent, kept: dtypes of what is sent, and of its output. activation:
    comes before it; the second's is First's.
    """

    operator: "LinearOperator"
    sent: torch.dtype
    kept: torch.dtype
    activation: ReluDropout | None = None


def convolve_remade_twice(
    first: First,
    second: Above,
    third: Above,
    first_bias: torch.Tensor | None,
    first_weights: list[torch.Tensor],
    weights: tuple[tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None], ...],
) -> torch.Tensor:
    """y (m, d_out) of the third convolution, differentiable in all weights. Collective.

    Args:
        first: makes the first output.
        second, third: the convolutions above.
        first_bias, first_weights: of the first convolution: b, and W_k for each of its inputs.
        weights: (W_n, W_s or None, b or None) of the second, and of the third.
    """
    return _Twice.apply(first, second, third, *weights[0], *weights[1], first_bias, *first_weights)


class _Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, first: First, second: Above, third: Above, *weights: torch.Tensor | None) -> torch.Tensor:
        ctx.columns, ctx.third, ctx.weights = _Columns(first, second, third, weights), third, weights[3:6]
        neighbour, own, bias = ctx.weights
        operator, count, dtype = third.operator, second.operator.num_outputs, neighbour.dtype
        y = operator.empty_streamed(operator.num_outputs, neighbour.shape[1], third.kept, transposed=True)
        s = operator.empty_streamed(count, neighbour.shape[1], third.sent)
        products, results = _Sum(operator.arena, s, dtype), _Sum(operator.arena, y, dtype)
        for k in ctx.columns.all:
            _add_products(ctx.columns.make(k), k, ctx.weights, operator, (s, products), (y, results))
        add_sums(y, s, operator, own, bias)
        return y

    @staticmethod
    def backward(ctx: Any, gy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (neighbour, own, bias), columns, gy = ctx.weights, ctx.columns, in_rows(gy)
        operator, sent = ctx.third.operator, ctx.third.sent
        dtype, arena = neighbour.dtype, operator.arena
        into, g_neighbour = columns.gradients(), torch.zeros_like(neighbour)
        g_own, g_bias = (None if each is None else torch.zeros_like(each) for each in (own, bias))
        if g_bias is not None:
            gradients = Cast(arena, gy, dtype)
            for rows in row_tiles(len(gy)):
                kernels.bias_gradient(g_bias, gradients.read(gy[rows]))
            del gradients
        wider = gy.element_size() > sent.itemsize
        narrow = operator.empty_streamed(*gy.shape, sent, transposed=True).copy_(gy) if wider else gy
        t = _kept_sums(operator, narrow, columns.rows)
        del narrow
        for k in columns.all:
            x = columns.make(k)
            mine = None if own is None or g_own is None else (own[k], g_own[k])  # both or none
            _through(x, t, gy, (neighbour[k], g_neighbour[k]), mine, ctx.third)
            columns.pass_back(k, x, into)
            del x
        return (
            None,
            None,
            None,
            into.neighbour,
            into.own,
            into.bias,
            g_neighbour,
            g_own,
            g_bias,
            into.first_bias,
            *into.first,
        )


class _Columns:
    """Makes some columns of the second output, and takes their gradients back.

    Attributes:
        all: slices of columns that are made at a time.
        rows: m.
    """

    def __init__(self, first: First, second: Above, third: Above, weights: tuple[torch.Tensor | None, ...]) -> None:
        assert third.activation is not None, "comes between the second and the third"
        self._first, self._second, self._activation = first, second, third.activation
        neighbour, self._own, self._bias = weights[:3]
        assert neighbour is not None and all(each is not None for each in weights[7:]), "a layer has weights"
        self._neighbour = neighbour
        self._first_bias, self._first_weights = weights[6], [each for each in weights[7:] if each is not None]
        width = neighbour.shape[1]
        self.rows = second.operator.num_outputs
        step = _columns(second.kept)
        self.all = [slice(start, min(start + step, width)) for start in range(0, width, step)]

    def make(self, k: slice) -> torch.Tensor:
        """The second output's columns k after the activation: (m, k). Collective."""
        second, width = self._second, k.stop - k.start
        operator, dtype = second.operator, self._neighbour.dtype
        x = operator.empty_streamed(operator.num_outputs, width, second.kept, transposed=True)
        z = operator.empty_streamed(self._first.constants.count, width, second.sent)
        picked = Picked(operator, self._neighbour.shape[0], dtype)
        with contextlib.ExitStack() as files:
            make = Maker(self._first, self._first_weights, self._first_bias, files)
            write_columns(x, z, make, picked, operator, self._of(k, self._bias))
        del z, make, picked
        whole = None
        if self._activation.p:  # draws are keyed by columns of all
            whole = operator.arena.empty(min(tile_rows(), len(x)), k.stop, dtype=x.dtype)
            whole[:, : k.start] = 0
        for rows in row_tiles(len(x)):
            if whole is None:
                self._activation.apply_(x[rows], rows)
                continue
            part = whole[: rows.stop - rows.start]
            part[:, k] = x[rows]
            self._activation.apply_(part, rows)
            x[rows] = part[:, k]
        return x

    def gradients(self) -> Gradients:
        """Of the first two convolutions' weights: zeros."""
        weights = self._neighbour, self._own
        return Gradients.of(weights, self._bias is not None, self._first_weights, self._first_bias)

    def pass_back(self, k: slice, gy: torch.Tensor, into: Gradients) -> None:
        """Add the gradients for that of columns k before the activation. Collective."""
        neighbour, own, _ = self._of(k, None)
        of_columns = Gradients.of((neighbour, own), self._bias is not None, [], None)
        of_columns = dataclasses.replace(of_columns, first=into.first, first_bias=into.first_bias)
        weights = self._first_weights, self._first_bias, (neighbour, own)
        pass_back(self._first, self._second.operator, self._second.sent, gy, weights, of_columns)
        into.neighbour[:, k] = of_columns.neighbour
        if into.own is not None and of_columns.own is not None:
            into.own[:, k] = of_columns.own
        if into.bias is not None and of_columns.bias is not None:
            into.bias[k] = of_columns.bias

    def _of(self, k: slice, bias: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        own = self._own
        return self._neighbour[:, k], None if own is None else own[:, k], None if bias is None else bias[k]


class _Sum:
    """Adds products to a matrix, which may be kept in a narrower type than is computed with."""

    def __init__(self, arena: Arena, y: torch.Tensor, dtype: torch.dtype) -> None:
        self._cast = Cast(arena, y, dtype)

    def add(
        self, part: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, *, begin: bool
    ) -> None:
        """part (rows of the matrix) += x W, or, to `begin`, = x W + b."""
        if begin:
            self._cast.write(part, lambda out: kernels.multiply(out, x, weight, bias))
            return
        out = self._cast.read(part)
        kernels.multiply(out, x, weight, add=True)
        self._cast.store(part, out)


def _add_products(
    x: torch.Tensor,
    k: slice,
    weights: tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None],
    operator: "LinearOperator",
    sent: tuple[torch.Tensor, _Sum],
    result: tuple[torch.Tensor, _Sum],
) -> None:
    """Add what the columns k of the third convolution's input, x (n, k), are to its products, with each _Sum of it."""
    neighbour, own, bias = weights
    inputs = Cast(operator.arena, x, read_type(x, neighbour.dtype))
    picked = _picked(operator, x, neighbour.dtype)
    for rows in row_tiles(len(x)):
        read = inputs.read(x[rows])
        sent[1].add(sent[0][rows], read, neighbour[k], None, begin=k.start == 0)
        if own is not None:
            mine, chosen = picked(rows, read)
            result[1].add(result[0][mine], chosen, own[k], bias, begin=k.start == 0)


def _kept_sums(operator: "LinearOperator", gy: torch.Tensor, rows: int) -> torch.Tensor:
    """A^T gy in gy's type, (rows, d_out). Collective."""
    parts = operator.parts(gy, transposed=True)
    t = operator.arena.empty(rows, gy.shape[1], dtype=gy.dtype)
    for mine, sums in (tile for part in parts for tile in part.tiles()):
        t[mine] = sums
    return t


def _picked(operator: "LinearOperator", x: torch.Tensor, dtype: torch.dtype) -> Picked:
    return Picked(operator, x.shape[1], read_type(x, dtype))


def _through(
    x: torch.Tensor,
    t: torch.Tensor,
    gy: torch.Tensor,
    neighbour: tuple[torch.Tensor, torch.Tensor],
    own: tuple[torch.Tensor, torch.Tensor] | None,
    third: Above,
) -> None:
    """Write the gradient of some columns of the second output, before the activation, over these columns x.

    Args:
        x: (n, k), after the activation.
        t, gy: (n, d_out) and (m, d_out), A^T of the gradient of the third output, and this gradient.
        neighbour, own: (these rows of the weights, of their gradients), which are added to; own may be None.
        third: the third convolution.
    """
    operator, activation, dtype = third.operator, third.activation, neighbour[0].dtype
    assert activation is not None, "comes between the second and the third"
    arena, inputs = operator.arena, Cast(operator.arena, x, read_type(x, dtype))
    gradients, picked = Cast(arena, gy, read_type(gy, dtype)), _picked(operator, x, dtype)
    shape = min(tile_rows(), len(x)), x.shape[1]
    spare, apart = arena.empty(*shape, dtype=dtype), arena.empty(*shape, dtype=dtype) if picked.some else None
    for rows in row_tiles(len(x)):
        read = inputs.read(x[rows])
        gx = spare[: len(read)]
        kernels.project_backward(gx, neighbour[1], read, t[rows], neighbour[0])
        if own is not None:
            mine, chosen = picked(rows, read)
            picked.project(gx, own, chosen, gradients.read(gy[mine]), apart)
        activation.gradient(gx, read, read)
        inputs.store(x[rows], read)
