"""The schedule of edges over a stream of which nothing is sent: interior rows by themselves, and at once."""

import numpy as np
import pytest
import torch

from hpcgnn.exchange.own_edges import OwnEdges
from hpcgnn.exchange.stream import Returns, Rows
from hpcgnn.graph.blocks import Block, halo_blocks, own_block
from hpcgnn.ops.work import Work, work

ROWS, INNER = 6, 4
SCALE = torch.arange(1.0, ROWS + 1)


class FakeStream:
    """Yields the own block, in two pieces around the first round if it may, and two rounds of a halo of three rows."""

    def __init__(self):
        columns = np.array([1, 0, 2, 5, 4, 3], np.int32)
        self.own = own_block(ROWS, np.array([0, 1, 1, 3, 4, 5]), columns, None)
        self.halo = halo_blocks(np.array([0, 2, 3]), np.array([0, 1, 1, 1, 3, 3, 3]), np.array([1, 0, 2]), None)
        self.edges, self.asked = OwnEdges(self.own, self.halo), []
        self.given = [torch.rand(2, 3), torch.rand(1, 3)]
        self.back = [torch.zeros(2, 1), torch.zeros(1, 1)]

    def __call__(self, rows, kind, returns=None, pieces=False):
        self.asked.append((rows, kind, returns, pieces))
        total = None if returns is None else returns.total
        own = self.edges.pieces(2 if pieces else 1)
        yield own[0], rows.x, rows.scale, total
        yield self.halo[0], self.given[0], None, None if returns is None else self.back[0]
        for piece in own[1:]:
            yield piece, rows.x, rows.scale, total
        yield self.halo[1], self.given[1], None, None if returns is None else self.back[1]


@pytest.mark.parametrize("with_returns", [False, True])
@pytest.mark.parametrize("pieces", [False, True])
@pytest.mark.parametrize("interior", [False, True])
def test_what_a_stream_yields_is_passed_on(interior, pieces, with_returns):
    stream, rows = FakeStream(), Rows(torch.rand(ROWS, 3), SCALE)
    returns = Returns(torch.zeros(ROWS, 1)) if with_returns else None
    done = list(work(stream, rows, "kind", returns, pieces, interior))
    assert stream.asked == [(rows, "kind", returns, pieces)]
    remote = [each for each in done if each.block.first_column is not None]
    for each, block, given, back in zip(remote, stream.halo, stream.given, stream.back, strict=True):
        assert each.block is block and each.rows is given and each.scale is None and not each.complete
        assert each.back is (back if with_returns else None)
        assert each.at == slice(0, INNER if interior else ROWS)
    for each in done:
        if each.block.first_column is None:
            assert each.rows is rows.x and each.scale is rows.scale
            assert each.back is (returns.total if with_returns else None)


@pytest.mark.parametrize("pieces", [False, True])
def test_interior_rows_are_complete_and_come_by_themselves(pieces):
    done = list(work(FakeStream(), Rows(torch.rand(ROWS, 3)), "kind", None, pieces))
    own = [each for each in done if each.block.first_column is None]
    assert [row for each in own for row in range(each.at.start, each.at.stop)] == list(range(ROWS))
    for each in own:
        assert each.complete == (each.at.start >= INNER) and each.block.num_rows == each.at.stop - each.at.start
    assert [each.at for each in own if each.complete] == [slice(INNER, ROWS)]
    first_remote = next(number for number, each in enumerate(done) if each.block.first_column is not None)
    assert any(each.block.first_column is None for each in done[first_remote:]) == pieces, "between the rounds"


@pytest.mark.parametrize("pieces", [False, True])
def test_without_interior_rows_nothing_is_complete_before_the_end(pieces):
    stream = FakeStream()
    done = list(work(stream, Rows(torch.rand(ROWS, 3)), "kind", None, pieces, interior=False))
    assert all(each.at == slice(0, ROWS) and not each.complete for each in done)
    own = [each.block for each in done if each.block.first_column is None]
    assert (len(own) == 1 and own[0] is stream.own) or pieces and len(own) == 2


@pytest.mark.parametrize("pieces", [False, True])
@pytest.mark.parametrize("interior", [False, True])
def test_summed_in_this_order_it_is_the_product(interior, pieces):
    """As an operator does it: rows that are complete are written, the others added to."""
    stream, x = FakeStream(), torch.rand(ROWS, 3)
    dense = torch.zeros(ROWS, ROWS + 3)
    for block, first in ((stream.own, 0), (stream.halo[0], ROWS), (stream.halo[1], ROWS + 2)):
        rows = torch.arange(block.num_rows) if block.rows is None else block.rows.long()
        rows = torch.repeat_interleave(rows, torch.diff(block.indptr))
        dense.index_put_((rows, block.indices.long() + first), torch.ones(len(rows)), accumulate=True)
    y = torch.full((ROWS, 3), torch.nan)
    y[: INNER if interior else ROWS] = 0
    for each in work(stream, Rows(x, SCALE), "kind", None, pieces, interior):
        each.block.multiply(each.rows, y[each.at], each.scale, None, accumulate=not each.complete)
    expected = dense @ torch.cat([x * SCALE[:, None], *stream.given])
    torch.testing.assert_close(y, expected)


def test_work_is_a_named_tuple_whose_fields_can_be_exchanged():
    """As linear_aggregation.py exchanges the scale of remote rows."""
    each = Work(Block(torch.zeros(1), torch.zeros(0)), slice(0, 0), True, torch.zeros(0, 1), None, None)
    assert each._replace(scale=SCALE).scale is SCALE and each._replace(scale=SCALE).at == each.at
