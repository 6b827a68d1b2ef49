"""What a rank sends in one pass over its plan: own rows as they are, and sums of own rows.

A sum stands for the edges that it sums: the receiver adds it to one row, in place of many rows that would each be added
to it (graph/least.py says which edges are served how). Both are rows of a sparse matrix S, and packing is S x.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch

from hpcgnn import kernels

# Numbers that are summed at a time before they are narrowed.
_PIECE = 1 << 15


@dataclass(frozen=True)
class Sums:
    """Sums of own rows. at: int32 (m,), increasing, which of the rows sent each is; indptr: int64 (m + 1,); indices:
    int32, own rows; weight: of the computing dtype, or None for ones.
    """

    at: torch.Tensor
    indptr: torch.Tensor
    indices: torch.Tensor
    weight: torch.Tensor | None

    @property
    def nbytes(self) -> int:
        return sum(each.nbytes for each in (self.at, self.indptr, self.indices, self.weight) if each is not None)


@dataclass(frozen=True)
class Sending:
    """The rows that are sent, in their order.

    count: how many; rows: int32 (m,), the own rows among them; at: int32 (m,), increasing, which of the rows sent each
    is, or None where there are no sums; sums: Sums, or None.
    """

    count: int
    rows: torch.Tensor
    at: torch.Tensor | None = None
    sums: Sums | None = None

    @property
    def nbytes(self) -> int:
        return self.rows.nbytes + sum(each.nbytes for each in (self.at, self.sums) if each is not None)

    def part(self, first: int, last: int) -> "Sending":
        """The rows first … last of those that are sent."""
        if self.at is None or self.sums is None:
            return Sending(last - first, self.rows[first:last])
        ends = torch.tensor([first, last], dtype=torch.int32)
        low, high = torch.searchsorted(self.at, ends).tolist()
        begin, end = torch.searchsorted(self.sums.at, ends).tolist()
        sums = Sums(
            self.sums.at[begin:end] - first,
            self.sums.indptr[begin : end + 1],
            self.sums.indices,
            self.sums.weight,
        )
        return Sending(last - first, self.rows[low:high], self.at[low:high] - first, sums)

    def pack(self, out: torch.Tensor, x: torch.Tensor, scale: torch.Tensor | None, within: torch.Tensor | None) -> None:
        """out (count, F) = S x of own rows x (n_p, F). scale: (n_p,) factors of rows that go as they are; within: of
        rows in sums; None: ones.
        """
        if self.at is None or self.sums is None:
            kernels.pack(out, x, self.rows, scale)
            return
        kernels.gather(out, x, self._ones, self.rows, rows=self.at, source_scale=scale)
        sums = self.sums
        kernels.gather(out, x, sums.indptr, sums.indices, rows=sums.at, weight=sums.weight, source_scale=within)

    def pieces(
        self, x: torch.Tensor, scale: torch.Tensor | None, within: torch.Tensor | None
    ) -> Iterator[tuple[int, torch.Tensor]]:
        """Yield (the number of the first, rows (m, F)) of S x, a few rows at a time; arguments as of `pack`."""
        step = max(1, _PIECE // max(1, x.shape[1]))
        for first in range(0, self.count, step):
            piece = self.part(first, min(first + step, self.count))
            rows = x.new_empty(piece.count, x.shape[1])
            piece.pack(rows, x, scale, within)
            yield first, rows

    def add_transposed(self, total: torch.Tensor, rows: torch.Tensor) -> None:
        """total (n_p, F) += Sᵀ rows, of rows (count, F): what comes back for what was sent, without scales."""
        if self.at is None or self.sums is None:
            total.index_add_(0, self.rows, rows)
            return
        total.index_add_(0, self.rows, rows[self.at.long()])
        sums = self.sums
        begin, end = int(sums.indptr[0]), int(sums.indptr[-1])
        place = torch.repeat_interleave(sums.at.long(), torch.diff(sums.indptr))
        step = max(1, _PIECE // max(1, rows.shape[1]))
        for first in range(begin, end, step):
            edges = slice(first, min(first + step, end))
            each = rows[place[edges.start - begin : edges.stop - begin]]
            if sums.weight is not None:
                each *= sums.weight[edges, None]
            total.index_add_(0, sums.indices[edges], each)

    @cached_property
    def _ones(self) -> torch.Tensor:
        """indptr of rows of one entry each."""
        return torch.arange(len(self.rows) + 1)

    def factors(self, scale: torch.Tensor) -> torch.Tensor:
        """(count,): the factors, of own rows (n_p,), that rows still need which go as they are; ones for sums."""
        if self.at is None:
            return scale[self.rows]
        found = scale.new_ones(self.count)
        found[self.at.long()] = scale[self.rows]
        return found
