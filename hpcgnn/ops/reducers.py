"""Reducers of the messages of a row's in-edges to one row, tile by tile, and back from its gradient to theirs.

A reducer sees every message twice: forwards to add it, and backwards, made anew, to give it its gradient.
It keeps one or two numbers per row and column, never anything per edge, but for `Each`, whose result is of edges. Rows
without messages give zeros. Large matrices are of the arena.
"""

import math
from typing import Any

import torch

from hpcgnn import kernels
from hpcgnn.graph.edge_tiles import EdgeTile
from hpcgnn.memory.arena import Arena
from hpcgnn.ops.row_tiles import picked

#: Messages (E, F), or for softmax (logits (E, H), values (E, F)).
Message = torch.Tensor | tuple[torch.Tensor, torch.Tensor]


def sum_segments(tile: EdgeTile, values: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """Σ of each row's values: (R, F) from (E, F), or added to the tile's rows of out (n, F)."""
    if out is None:
        out = values.new_empty(len(tile.rows), values.shape[1])
        kernels.gather(out, values.contiguous(), tile.indptr, tile.each)
    else:
        kernels.gather(out, values.contiguous(), tile.indptr, tile.each, rows=tile.rows, accumulate=True)
    return out


def _full(arena: Arena, like: torch.Tensor, rows: int, value: float = 0.0) -> torch.Tensor:
    """(rows, F) of one value, for messages like these."""
    return arena.empty(rows, like.shape[1], dtype=like.dtype).fill_(value)


def _counts(tile: EdgeTile, like: torch.Tensor) -> torch.Tensor:
    return torch.diff(tile.indptr).to(like.dtype)


class Sum:
    """y_i = Σ m_e. Messages (E, F) -> y (n, F).

    reads_y: whether `prepare` reads y, which is kept for it.
    """

    reads_y = False

    def __init__(self, arena: Arena, rows: int, message: torch.Tensor) -> None:
        self.y = _full(arena, message, rows)

    def add(self, tile: EdgeTile, message: torch.Tensor) -> None:
        """Take in the messages of a tile."""
        sum_segments(tile, message, self.y)

    def finish(self) -> torch.Tensor:
        """y (n, F), after the last tile; the reducer does not keep it."""
        return self.__dict__.pop("y")

    def prepare(self, gy: torch.Tensor, y: torch.Tensor) -> None:
        """Take y and its gradient, before the first tile of the backward pass."""
        self.gy = gy

    def rows_of_gradient(self, tile: EdgeTile) -> tuple[torch.Tensor, torch.Tensor | None]:
        """A matrix and which of its rows are the gradient of a tile's messages, which do not matter; None: all."""
        return self.gy, tile.owner

    def gradient(self, tile: EdgeTile, message: torch.Tensor) -> torch.Tensor:
        """The gradient of a tile's messages."""
        return picked(*self.rows_of_gradient(tile))


class Each(Sum):
    """m_e at the place of its edge, and y_i = Σ m_e. Messages (E, F) -> ((E_p, F), (n, F)).

    each: (E_p, F) to write to, without values if `unread`.
    """

    def __init__(self, arena: Arena, rows: int, message: torch.Tensor, each: torch.Tensor, unread: bool) -> None:
        super().__init__(arena, rows, message)
        self.each, self.unread = each, unread

    def add(self, tile: EdgeTile, message: torch.Tensor) -> None:
        super().add(tile, message)
        if not self.unread:
            self.each[tile.at] = message

    def finish(self) -> Any:
        return self.__dict__.pop("each"), super().finish()

    def prepare(self, gy: Any, y: Any) -> None:
        self.of_each, of_sums = gy
        super().prepare(of_sums, y)

    def rows_of_gradient(self, tile: EdgeTile) -> tuple[torch.Tensor, torch.Tensor | None]:
        if self.of_each is None:
            return super().rows_of_gradient(tile)
        each = self.of_each[tile.at]
        return (each if self.gy is None else picked(self.gy, tile.owner).add_(each)), None


class Mean(Sum):
    """y_i = Σ m_e / number of edges."""

    def __init__(self, arena: Arena, rows: int, message: torch.Tensor) -> None:
        super().__init__(arena, rows, message)
        self.count = message.new_zeros(rows, 1)

    def add(self, tile: EdgeTile, message: torch.Tensor) -> None:
        super().add(tile, message)
        self.count[tile.rows.long()] += _counts(tile, message)[:, None]

    def finish(self) -> torch.Tensor:
        self.count.clamp_(min=1)
        return super().finish().div_(self.count)

    def prepare(self, gy: torch.Tensor, y: torch.Tensor) -> None:
        self.gy = gy / self.count


class Max:
    """y_i = max m_e, column by column; equal messages share the gradient evenly."""

    sign, reads_y = 1, True

    def __init__(self, arena: Arena, rows: int, message: torch.Tensor) -> None:
        self.y = _full(arena, message, rows, -torch.inf)
        self.count = _full(arena, message, rows)

    def add(self, tile: EdgeTile, message: torch.Tensor) -> None:
        """Take in the messages of a tile."""
        message = (message if self.sign == 1 else -message).contiguous()
        kernels.gather_largest(self.y, self.count, message, tile.indptr, tile.each, rows=tile.rows)

    def finish(self) -> torch.Tensor:
        """y (n, F), after the last tile; the reducer does not keep it."""
        y = self.__dict__.pop("y").masked_fill_(self.count == 0, 0)
        return y if self.sign == 1 else y.neg_()

    def prepare(self, gy: torch.Tensor, y: torch.Tensor) -> None:
        """Take y and its gradient, before the first tile of the backward pass."""
        self.y, self.share = y, gy / self.count.clamp(min=1)

    def gradient(self, tile: EdgeTile, message: torch.Tensor) -> torch.Tensor:
        """The gradient of a tile's messages."""
        message = message.contiguous()
        g = torch.empty_like(message)
        kernels.largest_gradient(g, message, self.y, self.share, tile.indptr, tile.each, rows=tile.rows)
        return g


class Min(Max):
    """y_i = min m_e, column by column."""

    sign = -1


class Std:
    """y_i = sqrt(mean (m_e − mean m)² + ε), ε = 1e-5 (Corso et al., NeurIPS'20, eq. 4).

    Mean and squared distances are merged tile by tile (Chan et al., 1979); E[m²] − E[m]² would lose every digit where
    the mean is large against the spread.
    """

    epsilon, reads_y = 1e-5, True

    def __init__(self, arena: Arena, rows: int, message: torch.Tensor) -> None:
        self.mean, self.squares = _full(arena, message, rows), _full(arena, message, rows)
        self.count = message.new_zeros(rows, 1)

    def add(self, tile: EdgeTile, message: torch.Tensor) -> None:
        """Take in the messages of a tile."""
        rows, new = tile.rows.long(), _counts(tile, message)[:, None]
        mean = sum_segments(tile, message) / new.clamp(min=1)
        squares = sum_segments(tile, (message - mean[tile.segment]).square_())
        before = self.count[rows]
        both = (before + new).clamp_(min=1)
        apart = (mean - self.mean[rows]).mul_(new > 0)
        self.squares[rows] += squares + apart.square() * (before * new / both)
        self.mean[rows] += apart * (new / both)
        self.count[rows] += new

    def finish(self) -> torch.Tensor:
        """y (n, F), after the last tile; the reducer does not keep it."""
        y = self.__dict__.pop("squares").div_(self.count.clamp(min=1)).add_(self.epsilon)
        return y.sqrt_().mul_(self.count > 0)

    def prepare(self, gy: torch.Tensor, y: torch.Tensor) -> None:
        """Take y and its gradient, before the first tile of the backward pass."""
        self.share = gy / (y * self.count).masked_fill_(self.count == 0, math.inf)

    def gradient(self, tile: EdgeTile, message: torch.Tensor) -> torch.Tensor:
        """The gradient of a tile's messages."""
        return (message - picked(self.mean, tile.owner)) * picked(self.share, tile.owner)


class Several:
    """Some of the above side by side: y is their outputs, joined by columns."""

    def __init__(self, reducers: list[Sum | Max | Std]) -> None:
        self.reducers, self.reads_y = reducers, True

    def add(self, tile: EdgeTile, message: torch.Tensor) -> None:
        """Take in the messages of a tile."""
        for reducer in self.reducers:
            reducer.add(tile, message)

    def finish(self) -> torch.Tensor:
        """y (n, F × reducers), after the last tile."""
        return torch.cat([reducer.finish() for reducer in self.reducers], 1)

    def prepare(self, gy: torch.Tensor, y: torch.Tensor) -> None:
        """Take y and its gradient, before the first tile of the backward pass."""
        count = len(self.reducers)
        for reducer, *parts in zip(self.reducers, gy.chunk(count, 1), y.chunk(count, 1), strict=True):
            reducer.prepare(*parts)

    def gradient(self, tile: EdgeTile, message: torch.Tensor) -> torch.Tensor:
        """The gradient of a tile's messages."""
        # There is at least one, so that it is not the 0 that sum() begins with.
        return sum(reducer.gradient(tile, message) for reducer in self.reducers)  # type: ignore[return-value]


REDUCERS: dict[str, type[Sum] | type[Max] | type[Std]] = {"sum": Sum, "mean": Mean, "max": Max, "min": Min, "std": Std}


#: (logits (E, H), values (E, F)).
Pair = tuple[torch.Tensor, torch.Tensor]


class Softmax:
    """Messages (logit (E, H), value (E, F)) with F = H × width -> y (n, F).

    key, p: dropout of the coefficients, by edge and head; the denominator is that before dropout.
    """

    reads_y = True

    def __init__(self, arena: Arena, rows: int, message: Pair, key: int = 0, p: float = 0.0) -> None:
        logit, value = message
        self.heads, self.key, self.p = logit.shape[1], key, p
        self.y = _full(arena, value, rows)
        self.top = logit.new_full((rows, self.heads), -torch.inf)
        self.total = logit.new_zeros(rows, self.heads)

    def add(self, tile: EdgeTile, message: Pair) -> None:
        """Take in the messages of a tile."""
        logit, value = message
        # Rows one after the other are changed where they are. Each copy would be a parallel region more.
        rows = tile.consecutive or tile.rows.long()
        before = self.top[rows].clone()
        top = self.top[rows]
        kernels.gather_largest(top, torch.zeros_like(top), logit.contiguous(), tile.indptr, tile.each)
        shrink = torch.where(before == -torch.inf, 0.0, (before - top).exp_())
        weight = (logit - top[tile.segment]).exp_()
        total = self.total[rows].mul_(shrink).add_(sum_segments(tile, weight))
        y = self.y[rows]
        y = self._by_head(y, shrink, out=y)
        if tile.consecutive is None:  # else views of the sums were changed
            self.top[rows], self.total[rows], self.y[rows] = top, total, y
        sum_segments(tile, self._by_head(value, self._dropped(tile, weight)), self.y)

    def finish(self) -> torch.Tensor:
        """y (n, F), after the last tile; the reducer does not keep it."""
        y, top, total = (self.__dict__.pop(name) for name in ("y", "top", "total"))
        empty = total == 0
        self.top, self.share = top, total.reciprocal_().masked_fill_(empty, 0)
        return self._by_head(y, self.share)

    def prepare(self, gy: torch.Tensor, y: torch.Tensor) -> None:
        """Take y and its gradient, before the first tile of the backward pass."""
        product = (gy * y).unflatten(1, (self.heads, -1)).sum(-1)
        # Side by side: the rows of a tile's edges are then picked in one parallel region, not in three.
        self.gy, self.by_row = gy, torch.cat([self.top, self.share, product], 1)
        self.top, self.share, _ = self.by_row.chunk(3, 1)  # nothing is kept twice

    def gradient(self, tile: EdgeTile, message: Pair) -> Pair:
        """The gradients of a tile's logits and values."""
        logit, value = message
        top, share, product = picked(self.by_row, tile.owner).chunk(3, 1)
        alpha = (logit - top).exp_().mul_(share)
        gy, kept = picked(self.gy, tile.owner), alpha
        if self.p:
            mask = self._dropped(tile, torch.ones_like(alpha))
            value, kept = self._by_head(value, mask), alpha * mask
        along = (gy * value).unflatten(1, (self.heads, -1)).sum(-1)
        return alpha * along.sub_(product), self._by_head(gy, kept, out=gy)

    def _dropped(self, tile: EdgeTile, weight: torch.Tensor) -> torch.Tensor:
        if self.p == 0:
            return weight
        out = torch.empty_like(weight)
        kernels.dropout(out, weight, tile.edge_ids, self.key, self.p)
        return out

    def _by_head(self, values: torch.Tensor, factor: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """values (E, F) times the factors (E, H) of their heads, or written over `out`, which may be values itself."""
        heads = None if out is None else out.unflatten(1, (self.heads, -1))
        return torch.mul(values.unflatten(1, (self.heads, -1)), factor.unsqueeze(2), out=heads).flatten(1)


#: Each takes one of the two forms of messages.
Reducer = Sum | Max | Std | Several | Softmax
