"""The rows that a rank sends in one pass over its plan: own rows, and sums of own rows.

A sum stands for the edges that it sums. The receiver adds it to one row, in place of many rows.
graph/transforms/vertex_cover.py chooses the edges of each. Both are rows of a sparse matrix S; packing is S x.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch

from hpcgnn import kernels

# Numbers that are made at a time before they are narrowed: they stay in the cache.
_PIECE = 1 << 18
# Rows that are packed at a time beside sums: their places take little memory then.
_ROWS = 1 << 13


@dataclass(frozen=True)
class PartialSums:
    """Sums of own rows, among sent own rows.

    Attributes:
        at, rows_at: int32 (m,) and (k,), increasing, the places of the sums and of the rows among the sent rows, plus
            `first`. So all parts of a plan share the memory of its places.
        indptr: int64 (m + 1,).
        indices: int32, own rows.
        weight: of the computing dtype, or None for ones.
        first: of the sent rows, among those that the places count.
    """

    at: torch.Tensor
    rows_at: torch.Tensor
    indptr: torch.Tensor
    indices: torch.Tensor
    weight: torch.Tensor | None
    first: int = 0

    @property
    def nbytes(self) -> int:
        tensors = self.at, self.rows_at, self.indptr, self.indices, self.weight
        return sum(each.nbytes for each in tensors if each is not None)


class Scaled(NamedTuple):
    """Own rows x (n_p, F). scale: (n_p,) factors of rows that go as they are; within: factors of rows in sums. None:
    ones.
    """

    x: torch.Tensor
    scale: torch.Tensor | None = None
    within: torch.Tensor | None = None


@dataclass(frozen=True)
class SendMatrix:
    """The sent rows, in their order. rows: int32 (k,), the own rows that go as they are; sums: PartialSums, or None."""

    rows: torch.Tensor
    sums: PartialSums | None = None

    @property
    def count(self) -> int:
        """Rows that are sent, of either kind."""
        return len(self.rows) + (0 if self.sums is None else len(self.sums.at))

    @property
    def nbytes(self) -> int:
        return self.rows.nbytes + (0 if self.sums is None else self.sums.nbytes)

    def part(self, first: int, last: int) -> "SendMatrix":
        """The sent rows from number `first` up to `last`."""
        sums = self.sums
        if sums is None:
            return SendMatrix(self.rows[first:last])
        first += sums.first
        ends = torch.tensor([first, last + sums.first], dtype=torch.int32)
        low, high = torch.searchsorted(sums.rows_at, ends).tolist()
        begin, end = torch.searchsorted(sums.at, ends).tolist()
        at, rows_at, indptr = sums.at[begin:end], sums.rows_at[low:high], sums.indptr[begin : end + 1]
        return SendMatrix(self.rows[low:high], PartialSums(at, rows_at, indptr, sums.indices, sums.weight, first))

    def picked(self, places: torch.Tensor) -> "SendMatrix":
        """The sent rows at some places, int64 (m,), increasing: a copy."""
        number = torch.full((self.count,), -1, dtype=torch.int32)
        number[places] = torch.arange(len(places), dtype=torch.int32)
        sums = self.sums
        if sums is None:
            return SendMatrix(self.rows[places])
        rows_at, at = (number[(each - sums.first).long()] for each in (sums.rows_at, sums.at))
        lengths, begin, end = sums.indptr.diff(), int(sums.indptr[0]), int(sums.indptr[-1])
        mine = torch.repeat_interleave(at >= 0, lengths)
        indptr = torch.cat([lengths.new_zeros(1), lengths[at >= 0].cumsum(0)])
        weight = None if sums.weight is None else sums.weight[begin:end][mine]
        indices = sums.indices[begin:end][mine]
        return SendMatrix(
            self.rows[rows_at >= 0], PartialSums(at[at >= 0], rows_at[rows_at >= 0], indptr, indices, weight)
        )

    def pack(self, out: torch.Tensor, own: Scaled) -> None:
        """out (count, F) = S x of own rows."""
        (x, scale, within), sums = own, self.sums
        if sums is None:
            kernels.pack(out, x, self.rows, scale)
            return
        ones = torch.arange(min(_ROWS, len(self.rows)) + 1)
        for rows, places in zip(self.rows.split(_ROWS), sums.rows_at.split(_ROWS), strict=True):
            kernels.gather(out, x, ones[: len(rows) + 1], rows, rows=places - sums.first, source_scale=scale)
        where = sums.at - sums.first
        kernels.gather(out, x, sums.indptr, sums.indices, rows=where, weight=sums.weight, source_scale=within)

    def pieces(self, own: Scaled, dtype: torch.dtype) -> Iterator[tuple[int, torch.Tensor]]:
        """Yield (the number of the first, rows (m, F) of a type) of S x, a few rows at a time."""
        step = max(1, _PIECE // max(1, own.x.shape[1]))
        for first in range(0, self.count, step):
            piece = self.part(first, min(first + step, self.count))
            rows = own.x.new_empty(piece.count, own.x.shape[1], dtype=dtype)
            piece.pack(rows, own)
            yield first, rows

    def factors(self, scale: torch.Tensor) -> torch.Tensor:
        """(count,): of the factors of own rows (n_p,) the ones of rows that go as they are; ones for sums."""
        if self.sums is None:
            return scale[self.rows]
        found = scale.new_ones(self.count)
        found[(self.sums.rows_at - self.sums.first).long()] = scale[self.rows]
        return found
