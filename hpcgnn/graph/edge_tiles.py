"""Blocks in pieces of few edges, so that arrays over edges have a bounded size and stay in the cache."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np
import torch

from hpcgnn import kernels
from hpcgnn.graph.blocks import Block

# Odd multipliers that spread ids over 64 bits (golden ratio; Steele et al., OOPSLA'14).
_SPREAD, _AGAIN = 0x9E3779B97F4A7C15 - 2**64, 0xBF58476D1CE4E5B9 - 2**64

#: int32, from 0: of the largest tile so far.
_numbers = torch.empty(0, dtype=torch.int32)


@dataclass(frozen=True)
class EdgeTile:
    """Some consecutive edges of a block, in the order of their rows.

    Attributes:
        indptr: int64 (R + 1,), from 0 to E.
        sources: int32 (E,), rows of the block's source buffer.
        rows: int32 (R,) own rows, increasing.
        first, last: numbers of its edges in the block.
        places: int32 or int64 (E,), the place of each edge in the rank's list of edges, or None.
        row_ids, column_ids: int64 (n_p,) and int64 of the source buffer: original ids, for `edge_ids`, or None.
        consecutive: slice of the rows, or None.
    """

    indptr: torch.Tensor
    sources: torch.Tensor
    rows: torch.Tensor
    first: int
    last: int
    places: torch.Tensor | None
    row_ids: torch.Tensor | None
    column_ids: torch.Tensor | None
    consecutive: slice | None = None

    @property
    def each(self) -> torch.Tensor:
        """int32 (E,): numbers of the edges, from 0; nobody writes to them."""
        global _numbers
        numbers = _numbers  # other threads may replace them
        if len(numbers) < len(self.sources):
            numbers = _numbers = torch.arange(len(self.sources), dtype=torch.int32)
        return numbers[: len(self.sources)]

    @cached_property
    def segment(self) -> torch.Tensor:
        """int64 (E,): which of the R rows each edge belongs to."""
        return torch.repeat_interleave(torch.diff(self.indptr))

    @cached_property
    def owner(self) -> torch.Tensor:
        """int32 (E,): the own row that each edge belongs to."""
        out = torch.empty_like(self.sources)
        kernels.edge_rows(out, self.indptr, self.rows)
        return out

    @cached_property
    def at(self) -> torch.Tensor | slice:
        """`places` as an index, of blocks that number their edges, as those do where rows of edges are read or made: a
        slice where they follow each other, else int64 (E,).
        """
        assert self.places is not None, "the edges are numbered"
        first, last = int(self.places[0]), int(self.places[-1]) + 1
        if last - first == len(self.places) and bool((self.places[1:] > self.places[:-1]).all()):
            return slice(first, last)
        return self.places.long()

    @cached_property
    def edge_ids(self) -> torch.Tensor:
        """int64 (E,): a key for the draws of each edge, the same on every rank and for every partition.

        It follows from the original ids of the edge's ends, and from its number among several equal edges.
        """
        owner, sources, place = self.owner, self.sources, torch.arange(len(self.sources))
        fresh = torch.ones(len(sources), dtype=torch.bool)
        fresh[1:] = (owner[1:] != owner[:-1]) | (sources[1:] != sources[:-1])
        occurrence = place - torch.where(fresh, place, 0).cummax(0).values
        # Whoever asks for these numbers has given the ids.
        rows, columns = cast(torch.Tensor, self.row_ids), cast(torch.Tensor, self.column_ids)
        return rows[owner] * _SPREAD + columns[sources] + occurrence * _AGAIN


def edge_tiles(
    block: Block, max_edges: int, row_ids: torch.Tensor | None, column_ids: torch.Tensor | None
) -> Iterator[EdgeTile]:
    """The EdgeTiles of a Block, each of about max_edges edges at most; a row with more is continued in the next tile.

    Several edges between the same two nodes, which are neighbours in a block, stay together.
    """
    indptr, sources, first, end = block.indptr.numpy(), block.indices.numpy(), 0, block.num_edges
    while first < end:
        last = min(first + max_edges, end)
        high = int(np.searchsorted(indptr, last, side="left"))  # one past the row that holds edge `last - 1`
        while last < indptr[high] and sources[last] == sources[last - 1]:
            last += 1
        low = int(np.searchsorted(indptr, first, side="right")) - 1  # the row that holds edge `first`
        inside = block.indptr[low : high + 1].clamp(first, last) - first
        rows = torch.arange(low, high, dtype=torch.int32) if block.rows is None else block.rows[low:high]
        at = slice(low, high) if block.rows is None else None
        places = None if block.edge is None else block.edge[first:last]
        yield EdgeTile(inside, block.indices[first:last], rows, first, last, places, row_ids, column_ids, at)
        first = last
