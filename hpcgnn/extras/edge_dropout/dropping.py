"""A graph that leaves out other edges in every epoch (DropEdge: Rong et al., ICLR 2020).

The original ids of both ends decide the draw of an edge; in an undirected graph an edge and its reverse have one draw.
So the owner of either end leaves out the same edges, at any number of ranks. The others are written into blocks of the
same rows, columns and plan. Streams and operators see an ordinary graph there, so every layer works. That takes 1 − P
of the edges' memory once more. Draws inside the sums would take no memory, but time in every pass of every layer, and
kernels for each operator.

Degrees count the remaining edges, as in the paper. A rank has all edges of its own nodes, so it can count them.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import torch

from hpcgnn.extras.edge_dropout.kernel import EdgeColumns, drop_edges
from hpcgnn.graph.blocks import Block
from hpcgnn.graph.local import Adjacency, LocalGraph

# Room of a block for the edges that are left, above the mean of their number: in roots of the number of all, of which a
# standard deviation is 0.7 at most.
_ROOM = 8
# The largest probability that there is: nothing is left but what is never left out.
_NOTHING = 1 - 2.0**-32

#: (inward, outward): degrees, float64, of the rows of each direction.
Degrees = tuple[torch.Tensor, torch.Tensor]


class DroppedEdges:
    """The remaining edges of a LocalGraph in each epoch. Nothing is collective.

    Attributes:
        whole: LocalGraph, whose plans send rows.
        halo_ids: int64, original ids of the halo of each direction.
        rate: the probability P, below 1, of leaving an edge out.
        undirected: whether an edge and its reverse are one edge.
        degrees: degrees of the remaining edges in the whole graph, if `whole` has only a part; None: counted here.
        local: the LocalGraph of the remaining edges, after `draw`.
    """

    def __init__(
        self,
        whole: LocalGraph,
        halo_ids: tuple[torch.Tensor, torch.Tensor],
        rate: float,
        undirected: bool,
        degrees: Callable[[], Degrees] | None = None,
    ) -> None:
        self._degrees, self._key, self._drawn, self._counted = degrees, 0, False, False
        rows, columns, rate = whole.output_id, whole.original_id, min(rate, _NOTHING)
        ends = ("rows_are_either",) * 2 if undirected else ("rows_are_destinations", "rows_are_sources")
        inward = outward = _Direction(whole.inward, rows, columns, halo_ids[0], ends[0], rate)
        self._directions = [inward]
        if whole.outward is not whole.inward:
            outward = _Direction(whole.outward, columns, rows, halo_ids[1], ends[1], rate)
            self._directions.append(outward)
        self.local = replace(whole, inward=inward.left, outward=outward.left)

    def begin(self, key: int) -> None:
        """A new epoch, with its key of draws. Nothing is drawn yet."""
        self._key, self._drawn, self._counted = key, False, False

    def draw(self) -> None:
        """Write this epoch's remaining edges to `local`, unless that is done."""
        if self._drawn:
            return
        for each in self._directions:
            each.draw(self._key)
        if self._degrees is not None:
            for adjacency, degree in zip((self.local.inward, self.local.outward), self._degrees(), strict=True):
                adjacency.degree.copy_(degree)
        self._drawn = self._counted = True

    def degrees(self) -> Degrees:
        """The degrees of this epoch's edges."""
        if not self._counted:
            for each in self._directions:
                each.draw(self._key, copies=False)
        self._counted = True
        return self.local.inward.degree, self.local.outward.degree

    @property
    def kept_bytes(self) -> int:
        """Bytes of the blocks of remaining edges."""
        return sum(block.nbytes for each in self._directions for _, block, _ in each.blocks)


class _Direction:
    """One direction of the edges. left: the Adjacency of the remaining edges. blocks: [(a block of the whole, its block
    of remaining edges, original ids of its columns)].
    """

    def __init__(
        self, whole: Adjacency, rows: torch.Tensor, columns: torch.Tensor, halo: torch.Tensor, ends: str, rate: float
    ) -> None:
        self._rows, self._ends, self._rate, self.blocks = rows, ends, rate, list[tuple[Block, Block, torch.Tensor]]()
        self._degree = torch.zeros(len(rows), dtype=torch.float64)
        for block in (whole.own, *whole.halo):
            ids = columns if block.first_column is None else halo[block.first_column :]
            self.blocks.append((block, self._room(block, ids), ids))
        own, *others = (left for _, left, _ in self.blocks)
        self.left = replace(whole, own=own, halo=others, degree=self._degree)

    def draw(self, key: int, copies: bool = True) -> None:
        """Write the blocks of remaining edges, and the degrees; or these alone."""
        self._degree.zero_()
        for block, left, ids in self.blocks:
            room = EdgeColumns(left.indices, left.weight, left.edge) if copies else None
            count = self._drop(block, ids, key, self._rate, left.indptr, room)
            assert room is None or count <= len(left.indices), "more edges are left than any draw leaves"

    def _drop(
        self,
        block: Block,
        ids: torch.Tensor,
        key: int,
        rate: float,
        indptr: torch.Tensor,
        room: EdgeColumns | None,
    ) -> int:
        columns = EdgeColumns(block.indices, block.weight, block.edge)
        stored = {"indptr": block.indptr, "rows": block.rows, "kept_indptr": indptr, "degree": self._degree}
        return drop_edges(columns, room, self._ends, key, rate, row_ids=self._rows, column_ids=ids, **stored)

    def _room(self, block: Block, ids: torch.Tensor) -> Block:
        """An empty Block for the remaining edges of a block."""
        indptr = torch.zeros_like(block.indptr)
        loops = self._drop(block, ids, 0, _NOTHING, indptr, None)
        count = block.num_edges
        most = loops + (1 - self._rate) * (count - loops) + _ROOM * math.sqrt(count)
        size = min(count, math.ceil(most))
        indices, weight, edge = (
            None if each is None else each.new_empty(size) for each in (block.indices, block.weight, block.edge)
        )
        assert indices is not None, "every edge has a source"
        return replace(block, indptr=indptr.zero_(), indices=indices, weight=weight, edge=edge)
