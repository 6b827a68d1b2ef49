"""Edges one by one in plain torch (see reference.py): their random words, and the block that edge dropout leaves."""

from collections.abc import Iterator

import torch
from torch import Tensor

from .interface import EDGE_ENDS, EdgeRule
from .random_reference import philox

PIECE = 1 << 22  # elements of an expanded piece of edges: 16 MiB of float32

_MASK = 0xFFFFFFFF


def _edge_words(dst: Tensor, src: Tensor, duplicate: Tensor, columns: int, key: int) -> Tensor:
    """The words of edges: int64 (edges, columns). dst, src: original ids; duplicate: counts equal edges before."""
    groups = (columns + 3) // 4
    counters = torch.empty(dst.numel(), groups, 4, dtype=torch.int64)
    counters[..., 0] = (dst & _MASK)[:, None]
    counters[..., 1] = (src & _MASK)[:, None]
    counters[..., 2] = ((dst >> 32) & 0xFFFF | ((src >> 32) & 0xFFFF) << 16)[:, None]
    counters[..., 3] = duplicate[:, None] * groups + torch.arange(groups)
    return philox(counters, key).reshape(dst.numel(), 4 * groups)[:, :columns]


def edge_factors(
    rule: EdgeRule, row_ids_are_dst: bool, target: Tensor, columns: Tensor, duplicate: Tensor, heads: int
) -> Tensor:
    """Attention dropout's factors 0 or 1 / (1 - p) of edges: (edges, heads) float64. `duplicate` counts equal edges
    before."""
    key, threshold, scale, row_ids, column_ids = rule
    ends = row_ids[target], column_ids[columns]
    dst, src = ends if row_ids_are_dst else ends[::-1]
    words = _edge_words(dst, src, duplicate, heads, key)
    return (words >= threshold).to(torch.float64) * scale


def edge_pieces(
    indptr: Tensor, indices: Tensor, rows: Tensor | None, width: int
) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Yields (edges, row of each, column of each, number of equal edges before each), pieces of bounded size, whole
    rows."""
    step, stored, first = max(1, PIECE // max(1, width)), indptr.numel() - 1, 0
    while first < stored:
        last = int(torch.searchsorted(indptr, indptr[first] + step, right=True)) - 1
        last = min(stored, max(last, first + 1))
        edges = torch.arange(int(indptr[first]), int(indptr[last]))
        row = torch.repeat_interleave(torch.arange(first, last), indptr[first : last + 1].diff())
        columns = indices[edges].to(torch.int64)
        fresh = torch.ones_like(edges, dtype=torch.bool)
        fresh[1:] = (row[1:] != row[:-1]) | (columns[1:] != columns[:-1])
        start = torch.where(fresh, torch.arange(edges.numel()), 0).cummax(0).values if edges.numel() else edges
        yield edges, row if rows is None else rows[row].to(torch.int64), columns, torch.arange(edges.numel()) - start
        first = last


def drop_edges(
    indptr: Tensor,
    indices: Tensor,
    rows: Tensor | None,
    weight: Tensor | None,
    edge: Tensor | None,
    row_ids: Tensor,
    column_ids: Tensor,
    key: int,
    threshold: int,
    ends: int,
    kept_indptr: Tensor,
    kept_indices: Tensor | None,
    kept_weight: Tensor | None,
    kept_edge: Tensor | None,
    degree: Tensor,
) -> int:
    counts, filled = torch.zeros(indptr.numel() - 1, dtype=torch.int64), 0
    copies = (kept_indices, indices), (kept_weight, weight), (kept_edge, edge)
    for edges, target, columns, duplicate in edge_pieces(indptr, indices, rows, 16):
        row_id, column_id = row_ids[target], column_ids[columns]
        dst, src = (row_id, column_id) if ends == EDGE_ENDS["rows_are_destinations"] else (column_id, row_id)
        if ends == EDGE_ENDS["rows_are_either"]:
            dst, src = torch.maximum(row_id, column_id), torch.minimum(row_id, column_id)
        words = _edge_words(dst, src, duplicate, 1, key)[:, 0]
        kept = edges[(words >= threshold) | (row_id == column_id)]
        stored = torch.searchsorted(indptr, kept, right=True) - 1
        counts += torch.bincount(stored, minlength=counts.numel())
        ones = torch.ones(len(kept), dtype=torch.float64)
        degree.index_add_(
            0, stored if rows is None else rows[stored], ones if weight is None else weight[kept].double()
        )
        end = filled + len(kept)
        if kept_indices is not None and end <= len(kept_indices):
            for to, source in copies:
                if to is not None and source is not None:
                    to[filled:end] = source[kept]
        filled = end
    kept_indptr[0] = 0
    torch.cumsum(counts, 0, out=kept_indptr[1:])
    return filled
