"""Rows of a tile's edges, and sums of their gradients by the nodes that the rows are of."""

import torch

from hpcgnn import kernels
from hpcgnn.graph.edge_tiles import EdgeTile


def picked(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """x[index]. index: int32 (m,)."""
    out = x.new_empty(len(index), x.shape[1])
    kernels.pack(out, x, index)
    return out


def add_by_source(back: torch.Tensor, to: torch.Tensor, gradient: torch.Tensor) -> None:
    """back[to] += the sum of its edges' gradients: edges are sorted by it, for there is no atomic addition. to: int32
    (E,), sources of the edges.
    """
    order = torch.argsort(to, stable=True)
    sources, starts = to[order], torch.empty(len(order) + 1, dtype=torch.bool)
    starts[0] = starts[-1] = True
    torch.ne(sources[1:], sources[:-1], out=starts[1:-1])  # unique_consecutive is serial
    indptr = starts.nonzero().squeeze(1)
    kernels.gather(back, gradient.contiguous(), indptr, order.int(), rows=sources[indptr[:-1]], accumulate=True)


def add_by_row(total: torch.Tensor, tile: EdgeTile, gradient: torch.Tensor) -> None:
    """total[row] += the sum of its edges' gradients."""
    kernels.gather(total, gradient.contiguous(), tile.indptr, tile.each, rows=tile.rows, accumulate=True)
