"""Matrices of rows that never change, in memory or on disk, as layers read them: in order, some rows at a time.

Dropout is drawn anew each time they are read, so its result never exists as a whole.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from hpcgnn import kernels
from hpcgnn.memory.arena import Arena
from hpcgnn.memory.on_disk import OnDisk, Reading
from hpcgnn.ops.dropout import Drop
from hpcgnn.ops.row_tiles import Cast, in_rows, read_type, sum_type, tile_rows, tiles_or_all


@dataclass(frozen=True)
class Constants:
    """Matrices (n_p, F_k), functions that drop their entries or None, and the rows to read: int32 (m,), or None for
    all.
    dtype: computing dtype. wide: whether all rows are given in it.
    """

    inputs: tuple[torch.Tensor | OnDisk, ...]
    drops: tuple[Drop | None, ...]
    outputs: torch.Tensor | None
    dtype: torch.dtype
    arena: Arena
    wide: bool = False

    @property
    def count(self) -> int:
        """Rows of the result."""
        return len(self.inputs[0]) if self.outputs is None else len(self.outputs)

    def dropped(self, any_number: bool = True) -> Iterator[tuple[slice, list[torch.Tensor]]]:
        """Yield (rows, the inputs' rows after dropout, to compute with); valid only until the next. any_number: whether
        they may be all at once, where nothing is done to them and there are many threads.
        """
        same = [x.dtype == t for x, t in zip(self.inputs, self._types, strict=True)]
        same += [isinstance(x, torch.Tensor) for x in self.inputs]
        as_they_are = self.outputs is None and not any(self.drops) and all(same)
        tiles = tiles_or_all(self.count, any_number and as_they_are)
        with contextlib.ExitStack() as files:
            read = self.reader(tiles[0].stop if tiles else 0, files)
            for rows in tiles:
                yield rows, read(rows)

    @property
    def _types(self) -> list[torch.dtype]:
        """The types in which the inputs are computed with."""
        return [
            self.dtype if drop or self.wide else read_type(x, self.dtype)
            for x, drop in zip(self.inputs, self.drops, strict=True)
        ]

    def reader(self, most: int, files: contextlib.ExitStack) -> Callable[[slice], list[torch.Tensor]]:
        """read(rows) -> the inputs' rows after dropout, valid until the next call. Those on disk are read in order.

        Args:
            most: rows of a call, at most.
            files: closes what is opened.
        """
        casts, spares = [], []
        for x, drop, dtype in zip(self.inputs, self.drops, self._types, strict=True):
            at_once = self._at_once(x, drop)
            casts.append(Cast(self.arena, x, x.dtype if at_once else dtype))
            apart = at_once or self.outputs is not None or (drop and x.dtype == dtype)
            spares.append(self.arena.empty(most, x.shape[1], dtype=dtype if at_once else x.dtype) if apart else None)
        inputs = [self._in_order(x, files) for x in self.inputs]
        return lambda rows: [self._part(rows, *each) for each in zip(inputs, self.drops, casts, spares, strict=True)]

    def _at_once(self, x: torch.Tensor | OnDisk | Reading, drop: Drop | None) -> bool:
        """Whether one call picks rows, widens them and drops their entries."""
        return bool(drop) and isinstance(x, torch.Tensor) and self.dtype in (x.dtype, torch.float32)

    def _in_order(self, x: torch.Tensor | OnDisk, files: contextlib.ExitStack) -> torch.Tensor | Reading:
        """x, or its reader up to the last computed row."""
        if isinstance(x, torch.Tensor):
            return x
        last = 0 if self.count == 0 else self.count if self.outputs is None else int(self.outputs[-1]) + 1
        return files.enter_context(x.reading(last))

    def _part(
        self, rows: slice, x: torch.Tensor | Reading, drop: Drop | None, cast: Cast, spare: torch.Tensor | None
    ) -> torch.Tensor:
        spare = None if spare is None else spare[: rows.stop - rows.start]
        if drop and spare is not None and isinstance(x, torch.Tensor) and self._at_once(x, drop):
            if self.outputs is None:
                drop(x[rows], rows, spare)
            else:
                drop(x, rows, spare, self.outputs[rows])
            return spare
        if self.outputs is None:
            part = x[rows]
        elif isinstance(x, Reading):
            assert spare is not None, "made where rows are picked"
            part = x.select(self.outputs[rows], spare)
        else:
            part = torch.index_select(x, 0, self.outputs[rows], out=spare)
        part = cast.read(part)
        if not drop:
            return part
        out = part if spare is None or x.dtype != self.dtype else spare
        drop(part, rows, out)
        return out


class ConstantRows:
    """One such matrix (n_p, F); all rows are read. shape: as of a tensor. dtype: of the yielded rows.
    `rows @ weight` is differentiable in the weight, as with DroppedRows.

    drops: functions that drop entries of all rows, and of the rows `outputs` int32 (m,) (None: all), or None. scales:
    (F,), factors of the columns, or None. Rows are read without these: whoever multiplies them with a weight takes
    `scaled(weight)`.
    """

    def __init__(
        self,
        x: torch.Tensor | OnDisk,
        drops: tuple[Drop | None, Drop | None],
        arena: Arena,
        scales: torch.Tensor | None = None,
        outputs: torch.Tensor | None = None,
    ) -> None:
        self.shape, self.dtype = x.shape, sum_type(x.dtype)
        self.narrow, self.outputs = x.dtype != self.dtype, outputs
        self._x, self._drops, self._arena, self._scales = x, drops, arena, scales

    def __len__(self) -> int:
        return self.shape[0]

    def __matmul__(self, weight: torch.Tensor) -> torch.Tensor:
        return combine([(self._x, self.scaled(weight), self._drops[0])], None, self._arena)

    def scaled(self, weight: torch.Tensor) -> torch.Tensor:
        """The weight (F, d) with the factors of the columns in it. Differentiable."""
        return weight if self._scales is None else weight * self._scales[:, None]

    def whole(self) -> torch.Tensor:
        """All rows after dropout, as a matrix in memory; not of narrow rows."""
        x, drop = self._x, self._drops[0]
        assert isinstance(x, torch.Tensor) and not self.narrow, "others are read some rows at a time"
        if drop is None:
            return x
        out = torch.empty_like(x)
        drop(x, slice(0, len(x)), out)
        return out

    def tiles(self) -> Iterator[tuple[slice, torch.Tensor]]:
        """Yield (rows, these rows after dropout); valid only until the next."""
        for rows, (part,) in Constants((self._x,), (self._drops[0],), None, self.dtype, self._arena, True).dropped():
            yield rows, part

    def reader(self, outputs: bool, dtype: torch.dtype, files: contextlib.ExitStack) -> Callable[[slice], torch.Tensor]:
        """read(rows) -> these rows after dropout, a tile at most; valid until the next call. They are in memory.

        Args:
            outputs: whether rows are counted among the computed ones.
            dtype: to compute with.
            files: closes what is opened.
        """
        found = self.outputs if outputs else None
        constants = Constants((self._x,), (self._drops[outputs],), found, dtype, self._arena)
        read = constants.reader(min(tile_rows(), constants.count), files)
        return lambda rows: read(rows)[0]


def combine(
    parts: Sequence[tuple[torch.Tensor | OnDisk, torch.Tensor, Drop | None]],
    bias: torch.Tensor | None,
    arena: Arena,
    outputs: torch.Tensor | None = None,
    kept: torch.dtype | None = None,
) -> torch.Tensor:
    """Σ_k dropout_k(x_k) W_k + b for constant inputs: (m, d_out), differentiable in the weights and b (d_out,), or
    None. Local.

    parts: [(x_k (n_p, d_k), W_k (d_k, d_out), drop_k)]; drop_k(x, rows, out): writes these rows after
    dropout to `out`, or None. outputs: int32 (m,), the rows to compute; None: all. kept: dtype of the result
    (None: the weights'). Nothing is kept for the gradient: masks are drawn again. A matrix on disk is read in order,
    once in each direction.
    """
    inputs, weights, drops = zip(*parts, strict=True)
    dtype = weights[0].dtype
    return _Combine.apply(Constants(inputs, drops, outputs, dtype, arena), kept or dtype, bias, *weights)


class _Combine(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, constants: Constants, kept: torch.dtype, bias: torch.Tensor | None, *weights: torch.Tensor
    ) -> torch.Tensor:
        ctx.constants, ctx.weights, ctx.has_bias = constants, weights, bias is not None
        y = constants.arena.empty_streamed(constants.count, weights[0].shape[1], kept)
        results = Cast(constants.arena, y, constants.dtype)
        for rows, parts in constants.dropped(kept == constants.dtype):

            def result(out: torch.Tensor) -> None:
                kernels.multiply(out, parts[0], weights[0], bias)
                for part, weight in zip(parts[1:], weights[1:], strict=False):
                    kernels.multiply(out, part, weight, add=True)

            results.write(y[rows], result)
        return y

    @staticmethod
    def backward(ctx: Any, gy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        constants, gy = ctx.constants, in_rows(gy)
        gradients = Cast(constants.arena, gy, read_type(gy, constants.dtype))
        g_bias = gy.new_zeros(gy.shape[1], dtype=constants.dtype) if ctx.has_bias else None
        g_weights = [weight.new_zeros(weight.shape) for weight in ctx.weights]
        for rows, parts in constants.dropped(gy.dtype == constants.dtype):
            g = gradients.read(gy[rows])
            summed = g_bias  # once
            for part, g_weight, weight in zip(parts, g_weights, ctx.weights, strict=True):
                kernels.project_backward(None, g_weight, part, g, weight, y_sums=summed)
                summed = None
        return None, None, g_bias, *g_weights
