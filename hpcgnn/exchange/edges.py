"""The exchange's view of a block of edges (graph/blocks.py), the items of streams, and the own block in pieces.

Own edges are most of the computing and need no message. Done first, they hide the first turn alone. So a consumer that
only adds may take the own block in pieces, one before each turn arrives. Then a share of the computing hides every
message (docs/performance.md, overlap).
"""

import itertools
from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import torch

#: A block of edges between own rows and the columns of one source buffer (graph/blocks.py). The blocks of one stream
#: are all of one type.
EdgesT = TypeVar("EdgesT", bound=Any)


class StreamPart(NamedTuple, Generic[EdgesT]):
    """Edges that can be computed now: what a stream yields. Its rows are valid only until the next.

    Attributes:
        block: the edges; its rows are numbered within the own rows `at`.
        rows: (columns, F), the rows of its columns.
        scale: (columns,) their factors, or None.
        back: (columns, R), to which returns to the rows are added, or None.
        at: a slice of own rows.
        complete: whether the block has all edges of these rows.
    """

    block: EdgesT
    rows: torch.Tensor
    scale: torch.Tensor | None = None
    back: torch.Tensor | None = None
    at: slice = slice(None)
    complete: bool = False


class OwnEdges(Generic[EdgesT]):
    """block: the block of edges between own rows. halo: blocks of the rounds. Results are kept for the next call."""

    def __init__(self, block: EdgesT, halo: Sequence[EdgesT]) -> None:
        self.block = block
        #: The first of the own rows behind all that have an edge from another rank: nothing is added to those any more.
        self.first_interior = max((each.span[1] for each in halo), default=0)
        self._pieces: dict[int, list[EdgesT]] = {}
        self._parts: dict[int, list[tuple[EdgesT, slice, bool]]] = {}

    def pieces(self, number: int) -> list[EdgesT]:
        """The own block in `number` pieces of consecutive rows, with about equal numbers of edges."""
        if number == 1:
            return [self.block]
        if number not in self._pieces:
            indptr = self.block.indptr
            ends = torch.linspace(int(indptr[0]), int(indptr[-1]), number + 1, dtype=torch.float64)
            bounds = torch.searchsorted(indptr, ends.long()).tolist()
            bounds[0], bounds[-1] = 0, len(indptr) - 1
            rows = torch.arange(len(indptr) - 1, dtype=torch.int32) if self.block.rows is None else self.block.rows
            self._pieces[number] = [
                self.block.of_rows(indptr[first : last + 1], rows[first:last])
                for first, last in itertools.pairwise(bounds)
            ]
        return self._pieces[number]

    def split(self, part: StreamPart[EdgesT], interior: bool) -> list[StreamPart[EdgesT]]:
        """The parts of a part: of the own block, of a piece of it, or of a round.

        interior: whether interior rows are by themselves.
        """
        block, inner = part.block, self.first_interior
        if not interior:
            return [part]
        if block.first_column is not None:
            return [part._replace(at=slice(0, inner))]
        if id(block) not in self._parts:
            first, last = block.span
            cuts = [(first, min(last, inner), False), (max(first, inner), last, True)]
            self._parts[id(block)] = [
                (self.block.slice(start, stop), slice(start, stop), complete)
                for start, stop, complete in cuts
                if start < stop
            ]
        return [part._replace(block=each, at=at, complete=all_) for each, at, all_ in self._parts[id(block)]]
