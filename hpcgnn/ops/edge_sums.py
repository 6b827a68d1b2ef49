"""Sums of rows of the in-edges by own node. A rank has all of them, in the order of its nodes: nothing is sent."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from hpcgnn import kernels
from hpcgnn.ops.row_tiles import row_tiles


@dataclass(frozen=True)
class EdgeSum:
    """The operator of a rank. counts: int64 (n_p,), the in-edges of each own node."""

    counts: torch.Tensor

    def forward(self, edge: torch.Tensor) -> tuple[torch.Tensor, tuple[()]]:
        """See `differentiable`: (n_p, F) from (E_p, F). Nothing is kept."""
        edge, out = edge.contiguous(), edge.new_empty(len(self.counts), edge.shape[1])
        for rows, edges, indptr in self._tiles():
            each = torch.arange(edges.stop - edges.start, dtype=torch.int32)
            kernels.gather(out[rows], edge[edges], indptr - indptr[0], each)
        return out, ()

    def backward(self, gy: torch.Tensor, wanted: Sequence[bool]) -> tuple[torch.Tensor]:
        """See `differentiable`: each edge gets the gradient of its node."""
        gy, out = gy.contiguous(), gy.new_empty(int(self.counts.sum()), gy.shape[1])
        for rows, edges, indptr in self._tiles():
            number = torch.arange(rows.start, rows.stop, dtype=torch.int32)
            kernels.pack(out[edges], gy, torch.repeat_interleave(number, torch.diff(indptr)))
        return (out,)

    def _tiles(self) -> Iterator[tuple[slice, slice, torch.Tensor]]:
        """(rows, their edges, the numbers of the first edges of each and of the end), some rows at a time."""
        indptr = torch.cat([self.counts.new_zeros(1), self.counts.cumsum(0)])
        for rows in row_tiles(len(self.counts)):
            part = indptr[rows.start : rows.stop + 1]
            yield rows, slice(int(part[0]), int(part[-1])), part
