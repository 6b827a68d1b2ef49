"""How much of the edges is worked on at a time, by the number of threads."""

import pytest
import torch

from hpcgnn.graph.edge_tiles import EdgeTile
from hpcgnn.ops.reducers import Softmax
from hpcgnn.ops.row_tiles import EDGE_TILE_BYTES, edge_tile_bytes


@pytest.mark.parametrize("threads, shares", [(1, 1), (2, 1), (7, 1), (8, 8), (48, 48), (64, 64), (128, 64)])
def test_few_threads_share_a_tile_and_many_have_one_each(threads, shares):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert edge_tile_bytes() == shares * EDGE_TILE_BYTES
    finally:
        torch.set_num_threads(before)


def test_rows_one_after_the_other_are_reduced_as_any_others_are():
    """The softmax changes its sums in place where a tile's rows are consecutive; a second tile goes on with a row."""
    draw = torch.Generator().manual_seed(1)
    sums = []
    first, second = [torch.randn(6, 2, generator=draw), torch.randn(6, 2, generator=draw)]
    values = [torch.randn(6, 8, generator=draw), torch.randn(6, 8, generator=draw)]
    for in_place in (True, False):
        reducer = Softmax(7, (first, values[0]))
        for low, logit, value in ((1, first, values[0]), (3, second, values[1])):
            rows = torch.arange(low, low + 3, dtype=torch.int32)
            at = slice(low, low + 3) if in_place else None
            tile = EdgeTile(torch.tensor([0, 1, 4, 6]), torch.arange(6, dtype=torch.int32), rows, 0, 6, None, None, at)
            assert tile.owner.tolist() == [low, low + 1, low + 1, low + 1, low + 2, low + 2]
            reducer.add(tile, (logit, value))
        sums.append((reducer.top, reducer.total, reducer.y))
    assert all(torch.equal(a, b) for a, b in zip(*sums, strict=True))
    assert (sums[0][2][1:6] != 0).all() and (sums[0][2][[0, 6]] == 0).all()
