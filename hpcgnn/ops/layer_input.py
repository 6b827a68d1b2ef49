"""A layer's input that is no tensor: constant rows, which layers read some at a time, and sparse features.

Rows that never change lie in memory or elsewhere (memory/stored_rows.py), and are read in order. Dropout is drawn
anew each time they are read, so its result never exists as a whole.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from hpcgnn import kernels
from hpcgnn.graph.sparse_rows import SparseRows
from hpcgnn.memory.arena import Arena
from hpcgnn.memory.stored_rows import StoredRows
from hpcgnn.ops.draws import Drop
from hpcgnn.ops.row_tiles import Cast, Matrix, in_rows, read_type, sum_type, tile_rows, tiles_or_all

#: read(rows) -> rows to compute with, a tile at most; valid until the next call.
Read = Callable[[slice], torch.Tensor]


class LayerInput:
    """Rows (n_p, F) that a layer multiplies: `rows @ weight` is differentiable in the weight (F, d).

    shape, dtype: as of a tensor of what is computed with.
    """

    shape: Sequence[int]
    dtype: torch.dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __matmul__(self, weight: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError


#: What the forward pass of a layer takes.
Input = torch.Tensor | LayerInput


class DroppedRows(LayerInput):
    """Sparse features with a dropout mask that is drawn when they are multiplied: dropout_p(X) for one step.

    Wide bag-of-words features are never densified. X W gathers rows of W. The gradient X^T gy gathers rows of gy along
    the transposed structure that was built at load, without scatters or atomics.

    ids: int64 (n_p,) original node ids, which with `key` decide the mask, as in `dropout`.
    """

    def __init__(self, features: SparseRows, ids: torch.Tensor, key: int = 0, p: float = 0.0) -> None:
        self.features, self.shape, self.dtype = features, features.shape, features.data.dtype
        self._dropped = ids, key, p

    def __matmul__(self, weight: torch.Tensor) -> torch.Tensor:
        return _SparseProduct.apply(weight, self)

    def entries(self) -> torch.Tensor:
        """The stored entries after dropout: (nnz,)."""
        features, (ids, key, p) = self.features, self._dropped
        if p == 0:
            return features.data
        out = torch.empty_like(features.data)
        kernels.dropout_entries(out, features.data, features.indptr, ids, features.indices, key=key, p=p)
        return out


class _SparseProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: torch.Tensor, x: DroppedRows) -> torch.Tensor:
        ctx.x, features = x, x.features
        y = weight.new_empty(len(x), weight.shape[1])
        kernels.gather(y, weight.contiguous(), features.indptr, features.indices, weight=x.entries())
        return y

    @staticmethod
    def backward(ctx: Any, gy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        features = ctx.x.features
        data = ctx.x.entries()[features.t_entry]
        gweight = gy.new_empty(features.num_columns, gy.shape[1])
        kernels.gather(gweight, gy.contiguous(), features.t_indptr, features.t_indices, weight=data)
        return gweight, None


@dataclass(frozen=True)
class _Constant:
    """A matrix (n_p, F), what drops its entries or None, and the rows to read: int32 (m,), or None for all.

    dtype: computing dtype. wide: whether all rows are given in it. masked: whether the product drops entries.
    """

    x: Matrix
    drop: Drop | None
    outputs: torch.Tensor | None
    dtype: torch.dtype
    wide: bool = False
    masked: bool = False

    def __len__(self) -> int:
        return len(self.x) if self.outputs is None else len(self.outputs)

    @property
    def read_type(self) -> torch.dtype:
        """The type of the rows as they are given."""
        if self.masked:
            return self.x.dtype
        return self.dtype if self.drop or self.wide else read_type(self.x, self.dtype)

    @property
    def as_it_is(self) -> bool:
        """Whether nothing is done to its rows before they are multiplied."""
        return self.in_place and (self.masked or self.x.dtype == self.read_type)

    @property
    def in_place(self) -> bool:
        """Whether its rows, which may have to be widened, are multiplied where they are."""
        plain = self.outputs is None and (not self.drop or self.masked)
        return plain and isinstance(self.x, torch.Tensor) and self.x.numel() > 0

    def mask(self, rows: slice) -> kernels.Mask | None:
        """What drops entries on the way into a product, if `masked`."""
        return self.drop.mask(rows, self.dtype) if self.masked and self.drop else None

    def reader(self, most: int, arena: Arena, files: contextlib.ExitStack) -> Read:
        """Rows outside of memory are read in order. most: rows of a call, at most. files: closes what is opened."""
        x, drop, outputs = self.x, None if self.masked else self.drop, self.outputs
        # One call picks rows, widens them and drops their entries, if they are in memory.
        at_once = drop and isinstance(x, torch.Tensor) and self.dtype in (x.dtype, torch.float32)
        cast = Cast(arena, x, x.dtype if at_once else self.read_type)
        apart = at_once or outputs is not None or (drop and x.dtype == self.read_type)
        spare = arena.empty(most, x.shape[1], dtype=self.read_type if at_once else x.dtype) if apart else None
        source: Any = x  # a tensor, or the reader of stored rows
        if isinstance(x, StoredRows):
            last = 0 if len(self) == 0 else len(self) if outputs is None else int(outputs[-1]) + 1
            source = files.enter_context(x.reading(last))

        def read(rows: slice) -> torch.Tensor:
            out = None if spare is None else spare[: rows.stop - rows.start]
            if drop and at_once and out is not None:
                if outputs is None:
                    drop(source[rows], rows, out)
                else:
                    drop(source, rows, out, outputs[rows])
                return out
            if outputs is None or out is None:  # where rows are picked there is memory for them
                part = source[rows]
            elif isinstance(x, torch.Tensor):
                part = torch.index_select(x, 0, outputs[rows], out=out)
            else:
                part = source.select(outputs[rows], out)
            part = cast.read(part)
            if drop:
                dropped = part if out is None or x.dtype != self.dtype else out
                drop(part, rows, dropped)
                return dropped
            return part

        return read


def _tiles(
    constants: Sequence[_Constant], arena: Arena, any_number: bool = True
) -> Iterator[tuple[slice, list[torch.Tensor]]]:
    """Yield (rows, these rows of each), valid only until the next. any_number: whether they may be all at once, where
    nothing is done to them and there are many threads.
    """
    tiles = tiles_or_all(len(constants[0]), any_number and all(each.as_it_is for each in constants))
    with contextlib.ExitStack() as files:
        readers = [each.reader(tiles[0].stop if tiles else 0, arena, files) for each in constants]
        for rows in tiles:
            yield rows, [read(rows) for read in readers]


class ConstantRows(LayerInput):
    """A matrix (n_p, F) that never changes. dtype: of the rows that are read.

    drops: of entries of all rows, and of the computed rows, or None. scales: (F,), factors of the columns, or None.
    Rows are read without these: whoever multiplies them with a weight takes `scaled(weight)`.
    """

    def __init__(
        self, x: Matrix, drops: tuple[Drop | None, Drop | None], arena: Arena, scales: torch.Tensor | None = None
    ) -> None:
        self.shape, self.dtype = x.shape, sum_type(x.dtype)
        self._x, self._drops, self._arena, self._scales = x, drops, arena, scales

    def __matmul__(self, weight: torch.Tensor) -> torch.Tensor:
        return combine([(self._x, self.scaled(weight), self._drops[0])], None, self._arena)

    def scaled(self, weight: torch.Tensor) -> torch.Tensor:
        """The weight (F, d) with the factors of the columns in it. Differentiable."""
        return weight if self._scales is None else weight * self._scales[:, None]

    def whole(self) -> torch.Tensor:
        """All rows after dropout, as a matrix in memory; not of narrow rows."""
        x, drop = self._x, self._drops[0]
        assert isinstance(x, torch.Tensor) and x.dtype == self.dtype, "others are read some rows at a time"
        if drop is None:
            return x
        out = torch.empty_like(x)
        drop(x, slice(0, len(x)), out)
        return out

    def tiles(self) -> Iterator[tuple[slice, torch.Tensor, Callable[[slice], kernels.Mask | None]]]:
        """Yield (rows, these rows, what gives the Mask of some rows that a product still has to drop entries by), in
        order; valid only until the next.
        """
        masked = self._drops[0] is not None and isinstance(self._x, torch.Tensor) and kernels.one_pass(self.dtype)
        constant = _Constant(self._x, self._drops[0], None, self.dtype, True, masked)
        for rows, (part,) in _tiles([constant], self._arena):
            yield rows, part, constant.mask

    def of(self, outputs: torch.Tensor | None, dtype: torch.dtype) -> _Constant:
        """The rows `outputs` int32 (m,), those that are computed, or None for all. dtype: to compute with."""
        return _Constant(self._x, self._drops[outputs is not None], outputs, dtype)


def reader(
    x: torch.Tensor | ConstantRows, dtype: torch.dtype, arena: Arena, outputs: torch.Tensor | None = None
) -> Read:
    """Reads rows of a layer's input in any order, a tile at most; they are in memory. dtype: to compute with. outputs:
    int32 (m,), the rows that count, or None for all.
    """
    constant = _Constant(x, None, outputs, dtype) if isinstance(x, torch.Tensor) else x.of(outputs, dtype)
    return constant.reader(min(tile_rows(), len(constant)), arena, contextlib.ExitStack())


def combine(
    parts: Sequence[tuple[Matrix, torch.Tensor, Drop | None]],
    bias: torch.Tensor | None,
    arena: Arena,
    outputs: torch.Tensor | None = None,
    kept: torch.dtype | None = None,
) -> torch.Tensor:
    """Σ_k dropout_k(x_k) W_k + b for constant inputs: (m, d_out), differentiable in the weights and b (d_out,), or
    None. Local.

    parts: [(x_k (n_p, d_k), W_k (d_k, d_out), drop_k)]; drop_k(x, rows, out): writes these rows after
    dropout to `out`, or None. outputs: int32 (m,), the rows to compute; None: all. kept: dtype of the result
    (None: the weights'). Nothing is kept for the gradient: masks are drawn again. Stored rows are read in order,
    once in each direction.
    """
    dtype = parts[0][1].dtype
    at_once = outputs is None and kernels.one_pass(dtype)  # a product drops entries of rows in memory itself
    masked = [at_once and drop is not None and isinstance(x, torch.Tensor) for x, _, drop in parts]
    constants = [
        _Constant(x, drop, outputs, dtype, False, each) for (x, _, drop), each in zip(parts, masked, strict=True)
    ]
    return _Combine.apply(constants, arena, kept or dtype, bias, *(weight for _, weight, _ in parts))


class _Combine(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        constants: list[_Constant],
        arena: Arena,
        kept: torch.dtype,
        bias: torch.Tensor | None,
        *weights: torch.Tensor,
    ) -> torch.Tensor:
        ctx.constants, ctx.arena, ctx.weights, ctx.has_bias = constants, arena, weights, bias is not None
        dtype = weights[0].dtype
        y = arena.empty_streamed(len(constants[0]), weights[0].shape[1], kept)
        if kernels.one_pass(dtype) and y.numel() and len(weights) <= 2 and all(each.in_place for each in constants):
            every = slice(0, len(y))
            factors: Any = [(each.x, weight, each.mask(every)) for each, weight in zip(constants, weights, strict=True)]
            kernels.project_beside(y, factors, bias)
            return y
        results = Cast(arena, y, dtype)
        for rows, parts in _tiles(constants, arena, kept == dtype):

            def result(out: torch.Tensor) -> None:
                for k, (part, weight, each) in enumerate(zip(parts, weights, constants, strict=True)):
                    kernels.project(out, part, weight, each.mask(rows), bias=None if k else bias, add=k > 0)

            results.write(y[rows], result)
        return y

    @staticmethod
    def backward(ctx: Any, gy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        gy, dtype = in_rows(gy), ctx.weights[0].dtype
        gradients = Cast(ctx.arena, gy, read_type(gy, dtype))
        g_bias = gy.new_zeros(gy.shape[1], dtype=dtype) if ctx.has_bias else None
        g_weights = [weight.new_zeros(weight.shape) for weight in ctx.weights]
        for rows, parts in _tiles(ctx.constants, ctx.arena, gy.dtype == read_type(gy, dtype)):
            g = gradients.read(gy[rows])
            summed = g_bias  # once
            for part, g_weight, weight, each in zip(parts, g_weights, ctx.weights, ctx.constants, strict=True):
                kernels.project_backward(None, g_weight, part, g, weight, each.mask(rows), y_sums=summed)
                summed = None
        return None, None, None, g_bias, *g_weights
