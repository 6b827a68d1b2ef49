"""The own block in pieces and parts: every row once and in order, cut where nothing is added to the rows any more."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hpcgnn.exchange.edges import OwnEdges, Part
from hpcgnn.graph.blocks import Block, halo_blocks, own_block

# Of no columns: the parts of a block are cut whatever its rows are.
ROWS = torch.empty(0, 0)
DEGREES = st.lists(st.integers(0, 9), max_size=30)


def block_of(degrees, weighted=False):
    """The own Block of rows with so many edges each, which point to anything."""
    rows = np.repeat(np.arange(len(degrees)), degrees)
    columns = (np.arange(len(rows)) * 5 % max(1, len(degrees))).astype(np.int32)
    weight = torch.arange(len(rows), dtype=torch.float64) if weighted else None
    return own_block(len(degrees), rows, columns, weight)


def reaching(*rows):
    """Blocks of a halo of which each has edges to these own rows."""
    return [
        Block(
            torch.arange(len(each) + 1),
            torch.zeros(len(each), dtype=torch.int32),
            torch.tensor(each, dtype=torch.int32),
            None,
            first,
        )
        for first, each in enumerate(rows)
    ]


def edges_of(block, first=0):
    """[(row, column, weight)] in the order of the block; rows are counted from `first`."""
    rows = torch.arange(block.num_rows) if block.rows is None else block.rows.long()
    at = slice(int(block.indptr[0]), int(block.indptr[-1]))
    weight = torch.ones(at.stop - at.start) if block.weight is None else block.weight[at]
    rows = torch.repeat_interleave(rows, torch.diff(block.indptr)) + first
    return list(zip(rows.tolist(), block.indices[at].tolist(), weight.tolist()))


@given(DEGREES, st.integers(1, 12), st.booleans())
def test_pieces_are_the_block(degrees, number, weighted):
    """Each row once and in order; each edge with its weight; no piece longer than its share and one row more."""
    block = block_of(degrees, weighted)
    edges = OwnEdges(block, [])
    pieces = edges.pieces(number)
    assert len(pieces) == number
    rows = [torch.arange(piece.num_rows) if piece.rows is None else piece.rows.long() for piece in pieces]
    assert torch.cat(rows).tolist() == list(range(len(degrees)))
    assert [edge for piece in pieces for edge in edges_of(piece)] == edges_of(block)
    for piece in pieces:
        count = int(piece.indptr[-1] - piece.indptr[0])
        assert count <= sum(degrees) / number + max(degrees, default=0) + 1
        assert piece.first_column is None
    assert edges.pieces(number) is pieces or number == 1, "they are kept"


def test_one_piece_is_the_block_itself():
    block = block_of([2, 0, 3])
    assert OwnEdges(block, []).pieces(1)[0] is block


@pytest.mark.parametrize(
    "reached, expected", [((), 0), (((0,),), 1), (((1, 4), (2,)), 5), (((), (3,)), 4), (((),), 0)], ids=str
)
def test_the_first_interior_row(reached, expected):
    """It is behind the last row that any round reaches; those of no edge from another rank before it do not count."""
    assert OwnEdges(block_of([1] * 6), reaching(*reached)).first_interior == expected


@given(DEGREES, st.integers(0, 30), st.integers(1, 8))
def test_parts_cover_every_row_once_and_interior_ones_are_complete(degrees, inner, number):
    inner, block = min(inner, len(degrees)), block_of(degrees, weighted=True)
    edges = OwnEdges(block, reaching((inner - 1,)) if inner else [])
    assert edges.first_interior == inner
    for pieces in (edges.pieces(number), [block]):
        covered, found = [], []
        for piece in pieces:
            for part, _, _, _, at, complete in edges.split(Part(piece, ROWS), True):
                assert at.start < at.stop and part.rows is None and part.num_rows == at.stop - at.start
                assert complete == (at.start >= inner) and (complete or at.stop <= inner)
                covered += range(at.start, at.stop)
                found += edges_of(part, at.start)
        assert covered == list(range(len(degrees)))
        assert found == edges_of(block)


def test_a_rounds_block_is_one_part_that_is_not_complete():
    """Its rows are counted from the first own row, as far as any round reaches."""
    halo = halo_blocks(np.array([0, 2, 3]), np.array([0, 1, 1, 3, 3, 3, 4]), np.array([0, 1, 2, 2]), None)
    edges = OwnEdges(block_of([1] * 9), halo)
    assert edges.first_interior == 6
    for block in halo:
        [part] = edges.split(Part(block, ROWS), True)
        assert part.block is block and part.at == slice(0, 6) and not part.complete
