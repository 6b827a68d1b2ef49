"""Linear convolutions as one operator, of whose matrices only some columns are in memory at a time.

It does what `combine` (constants.py) and `Convolve` (convolution.py) do, with the same kernels on the same tiles of
rows, so that results are the same to the bit. Between two layers stands a matrix in a scratch file (memory/columns.py).
A layer that aggregates before it transforms, and its gradient, go over the columns first: their sums for all rows go to
the file, but for the last columns, which are still there when a tile of rows has its turn:

    for columns k but the last:  a[:, k] = A(x[:, k])
    for tiles of rows r:         y[r] = a[r] W_n + x[r] W_s + b, with a[r, last k] = A(x[:, last k])[r]

A layer that transforms first has its narrow products in memory as a whole.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from hpcgnn import kernels
from hpcgnn.memory.columns import Columns, Disk
from hpcgnn.ops.activation_dropout import ReluDropout
from hpcgnn.ops.constants import Constants
from hpcgnn.ops.row_tiles import row_tiles, tile_rows

if TYPE_CHECKING:
    from hpcgnn.ops.linear_operator import LinearOperator, Part

#: (W_n (d_in, d_out), W_s or None, b or None), or their gradients.
Triple = tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]
Put = Callable[[slice, torch.Tensor], None]


@dataclass(frozen=True)
class Step:
    """A convolution above the first: operator: A; activation: comes before it."""

    operator: "LinearOperator"
    activation: ReluDropout


def convolve_on_disk(
    first: Constants,
    first_bias: torch.Tensor | None,
    first_weights: Sequence[torch.Tensor],
    steps: Sequence[Step],
    weights: Sequence[Triple],
    disk: Disk,
) -> torch.Tensor:
    """The output (m, d_out) of the last convolution, differentiable in all weights. Collective.

    Args:
        first: the inputs of the first convolution, Σ_k dropout_k(x_k) W_k + b.
        first_bias, first_weights: b, and W_k.
        steps: the convolutions above it, d_out <= d_in each.
        weights: theirs.
        disk: where the matrices between them lie.
    """
    return _OnDisk.apply(first, steps, disk, first_bias, *first_weights, *(each for of in weights for each in of))


class _OnDisk(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        first: Constants,
        steps: Sequence[Step],
        disk: Disk,
        first_bias: torch.Tensor | None,
        *weights: torch.Tensor,
    ) -> torch.Tensor:
        count = len(first.inputs)
        ctx.first, ctx.steps, ctx.disk = first, steps, disk
        ctx.first_weights, ctx.first_bias = weights[:count], first_bias
        ctx.weights = [weights[at : at + 3] for at in range(count, len(weights), 3)]
        kept, ctx.inputs = any(ctx.needs_input_grad), []
        x = _first(first, first_bias, ctx.first_weights, steps[0].activation, disk)
        for number, (step, of) in enumerate(zip(steps[:-1], ctx.weights, strict=False), start=1):
            y = disk.matrix(step.operator.num_outputs, of[0].shape[1], x.dtype)
            with y.writing() as to:
                activation = steps[number].activation

                def put(rows: slice, out: torch.Tensor) -> None:
                    activation.apply_(out, rows)  # it is called before the next step
                    to.put(rows, out)

                _forward(step.operator, x, of, put)
            if kept:
                ctx.inputs.append(x)
            x = y
        last, of = steps[-1].operator, ctx.weights[-1]
        result = last.empty_streamed(last.num_outputs, of[0].shape[1], x.dtype, transposed=True)

        def put_result(rows: slice, out: torch.Tensor) -> None:
            result[rows] = out

        _forward(last, x, of, put_result)
        if kept:
            ctx.inputs.append(x)
        return result

    @staticmethod
    def backward(ctx: Any, gy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        into: list[list[torch.Tensor | None]] = []
        gradient: torch.Tensor | Columns = gy.contiguous()
        for step, of in zip(reversed(ctx.steps), reversed(ctx.weights), strict=True):
            x = ctx.inputs.pop()
            into.append([None if each is None else each.new_zeros(each.shape) for each in of])
            gx = ctx.disk.matrix(*x.shape, x.dtype)
            with gx.writing() as to:
                _Backwards(step, x, gradient, of, into[-1])(to.put)  # type: ignore[arg-type]
            gradient = gx
        assert isinstance(gradient, Columns), "there is a step at least"
        g_bias, g_weights = _first_gradients(ctx.first, ctx.first_bias, ctx.first_weights, gradient)
        return None, None, None, g_bias, *g_weights, *(each for of in reversed(into) for each in of)


def _first(
    first: Constants,
    bias: torch.Tensor | None,
    weights: Sequence[torch.Tensor],
    activation: ReluDropout,
    disk: Disk,
) -> Columns:
    """The first convolution's output, activated."""
    x = disk.matrix(first.count, weights[0].shape[1], first.dtype)
    tile = _tile(disk, x)
    with x.writing() as to:
        for rows, parts in first.dropped(False):
            out = tile[: rows.stop - rows.start]
            for number, (part, weight) in enumerate(zip(parts, weights, strict=True)):
                kernels.multiply(out, part, weight, None if number else bias, add=number > 0)
            activation.apply_(out, rows)
            to.put(rows, out)
    return x


def _first_gradients(
    first: Constants, bias: torch.Tensor | None, weights: Sequence[torch.Tensor], gy: Columns
) -> tuple[torch.Tensor | None, list[torch.Tensor]]:
    """The gradients of the first convolution's bias and weights, from that of its output."""
    g_bias = None if bias is None else torch.zeros_like(bias)
    g_weights = [weight.new_zeros(weight.shape) for weight in weights]
    tile = _tile(gy.disk, gy)
    with gy.reading() as read:
        for rows, parts in first.dropped(False):
            g, summed = read.rows(rows, tile[: rows.stop - rows.start]), g_bias  # once
            for part, g_weight, weight in zip(parts, g_weights, weights, strict=True):
                kernels.project_backward(None, g_weight, part, g, weight, y_sums=summed)
                summed = None
    return g_bias, g_weights


def _forward(operator: "LinearOperator", x: Columns, weights: Triple, put: Put) -> None:
    """put(rows, A(x) W_n + x W_s + b) for all computed rows. Collective."""
    neighbour, own, bias = weights
    arena, first = operator.arena, neighbour.shape[1] < x.shape[1]  # the narrower side is aggregated
    out_tile = arena.empty(min(tile_rows(), operator.num_outputs), neighbour.shape[1], dtype=x.dtype)
    mine, outputs = _tile(x.disk, x), operator.outputs
    with contextlib.ExitStack() as files:
        if first:
            present = None
            sums: Iterator[tuple[slice, torch.Tensor]] = _tiles(operator.parts(_product(x, neighbour, operator, mine)))
        else:
            present = _Present(x)
            sums = _sums(operator, present, operator.num_outputs, False, files)
        own_rows = None if own is None else _Rows(x, files, present)
        for rows, aggregate in sums:
            out = out_tile[: rows.stop - rows.start]
            if not first:
                kernels.multiply(out, aggregate, neighbour, bias)
            elif bias is None:
                out.copy_(aggregate)
            else:
                torch.add(aggregate, bias, out=out)
            if own is not None and own_rows is not None:  # both or none
                part = mine[: rows.stop - rows.start]
                part = own_rows(rows, part) if outputs is None else own_rows.select(outputs[rows], part)
                kernels.multiply(out, part, own, add=True)
            put(rows, out)


def _product(x: Columns, weight: torch.Tensor, operator: "LinearOperator", memory: torch.Tensor) -> torch.Tensor:
    """x W, in the memory of the columns if it fits there. memory: (tile, d_in)."""
    count, width = len(x), weight.shape[1]
    if width <= x.disk.columns:
        place = x.disk.resident(count, x.dtype)[: count * width * x.dtype.itemsize]
        sent = place.view(x.dtype).view(count, width)
    else:
        sent = operator.empty_streamed(count, width, x.dtype)
    with x.reading() as read:
        for rows in row_tiles(len(x)):
            kernels.multiply(sent[rows], read.rows(rows, memory[: rows.stop - rows.start]), weight)
    return sent


class _Present:
    """A matrix of which a group of columns is in memory."""

    def __init__(self, x: Columns | torch.Tensor, like: Columns | None = None) -> None:
        """like: whose groups a matrix in memory is taken in."""
        found = x if isinstance(x, Columns) else like
        assert found is not None, "given with a matrix in memory"
        self.x, self.groups, self.disk = x, found.groups, found.disk
        self.others = range(len(self.groups) - 1)
        self._memory = self.disk.resident(x.shape[0], x.dtype)
        self.columns = torch.empty(0)

    def load(self, number: int) -> torch.Tensor:
        """The columns (n, k) of a group, now in memory."""
        if isinstance(self.x, Columns):
            self.columns = self.x.load(number, self._memory)
        else:
            count, group = len(self.x), self.groups[number]
            nbytes = count * (group.stop - group.start) * self.x.element_size()
            self.columns = self._memory[:nbytes].view(self.x.dtype).view(count, -1).copy_(self.x[:, group])
        return self.columns


class _Rows:
    """Rows of a matrix, whose last group may be in memory."""

    def __init__(self, x: Columns, files: contextlib.ExitStack, present: _Present | None = None) -> None:
        numbers = range(len(x.groups)) if present is None else present.others
        self._read = files.enter_context(x.reading(numbers))
        self._present, self._last = present, x.groups[-1]

    def __call__(self, rows: slice, out: torch.Tensor) -> torch.Tensor:
        """out = these rows."""
        self._read.rows(rows, out)
        if self._present is not None:
            out[:, self._last] = self._present.columns[rows]
        return out

    def select(self, ids: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        """out = the rows `ids`, int32 and increasing."""
        self._read.select(ids, out)
        if self._present is not None:
            out[:, self._last] = self._present.columns.index_select(0, ids)
        return out


def _sums(
    operator: "LinearOperator", x: _Present, count: int, transposed: bool, files: contextlib.ExitStack
) -> Iterator[tuple[slice, torch.Tensor]]:
    """Yield (rows, their sums of all columns): of A x, or of Aᵀ x. The last group of x is in memory then. Collective.

    count: rows of the result.
    """
    disk, width = x.disk, x.x.shape[1]
    sums = disk.matrix(count, width, x.x.dtype)

    def parts(number: int) -> Iterator[tuple[slice, torch.Tensor]]:
        return _tiles(operator.parts(x.load(number), transposed, like=width))

    for number in x.others:
        with sums.writing([number]) as to:
            for rows, part in parts(number):
                to.put(rows, part)
    tile, read = _tile(disk, sums), files.enter_context(sums.reading(x.others))
    for rows, part in parts(len(x.groups) - 1):
        if not x.others:
            yield rows, part
            continue
        whole = read.rows(rows, tile[: rows.stop - rows.start])
        whole[:, sums.groups[-1]] = part
        yield rows, whole


class _Backwards:
    """The gradients of a convolution, as Convolve.backward makes them."""

    def __init__(self, step: Step, x: Columns, gy: torch.Tensor | Columns, weights: Triple, into: Triple) -> None:
        self._operator, self._activation = step.operator, step.activation
        self._x, self._gy, self._weights, self._into = x, gy, weights, into

    def __call__(self, put: Put) -> None:
        """put(rows, the gradient of the activation's input) for all rows of x; adds to those of the weights."""
        operator, x, gy = self._operator, self._x, self._gy
        (neighbour, own, _), (g_neighbour, g_own, g_bias) = self._weights, self._into
        with contextlib.ExitStack() as files:
            present: _Present | None = None
            if gy.shape[1] == x.shape[1]:
                present = _Present(gy, x)
                sums = _sums(operator, present, len(x), True, files)
            else:
                assert isinstance(gy, torch.Tensor), "only a last layer narrows"
                sums = _tiles(operator.parts(gy, transposed=True))
            read = files.enter_context(x.reading())
            used = not self._bias_in_order() and (g_own is not None or g_bias is not None)
            gradients = _Rows(gy, files, present) if isinstance(gy, Columns) and used else None
            x_tile, gx_tile = _tile(x.disk, x), _tile(x.disk, x)
            g_tile = x_tile[:0] if gradients is None else _tile(x.disk, x)
            picked = Picked(operator, x.shape[1], x.dtype)
            apart = _tile(x.disk, x) if picked.some else None
            for rows, t in sums:
                count = rows.stop - rows.start
                part, gx = read.rows(rows, x_tile[:count]), gx_tile[:count]
                kernels.project_backward(gx, g_neighbour, part, t, neighbour)
                if used:
                    mine, chosen = picked(rows, part)
                    if isinstance(gy, torch.Tensor):
                        g = gy[mine]
                    else:
                        assert gradients is not None, "read from the file where they are used"
                        g = gradients(mine, g_tile[: len(chosen)])
                    if own is not None and g_own is not None:  # both or none
                        picked.project(gx, (own, g_own), chosen, g, apart, g_bias)
                    elif g_bias is not None:
                        kernels.bias_gradient(g_bias, g)
                self._activation.gradient(gx, part, part)
                put(rows, part)

    def _bias_in_order(self) -> bool:
        """Whether the gradient of the bias has been made of all rows in their order, as Convolve does without W_s."""
        (neighbour, own, _), (_, _, g_bias), gy = self._weights, self._into, self._gy
        if own is not None or g_bias is None or not kernels.convolves(neighbour) or gy.dtype != neighbour.dtype:
            return False
        if isinstance(gy, torch.Tensor):
            kernels.bias_gradient(g_bias, gy)
            return True
        tile = _tile(gy.disk, gy)
        with gy.reading() as read:
            for rows in row_tiles(len(gy)):
                kernels.bias_gradient(g_bias, read.rows(rows, tile[: rows.stop - rows.start]))
        return True


class Picked:
    """The rows of a tile of x that an operator computes."""

    def __init__(self, operator: "LinearOperator", width: int, dtype: torch.dtype) -> None:
        self._operator, self.some = operator, operator.outputs is not None
        rows = min(tile_rows(), operator.num_outputs)
        self._memory = operator.arena.empty(rows, width, dtype=dtype) if self.some else None
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


def _tiles(parts: "Iterator[Part]") -> Iterator[tuple[slice, torch.Tensor]]:
    return (tile for part in parts for tile in part.tiles())


def _tile(disk: Disk, x: Columns) -> torch.Tensor:
    """Memory for a tile of rows of a matrix."""
    return disk.arena.empty(min(tile_rows(), len(x)), x.shape[1], dtype=x.dtype)
