"""How much of the edges is worked on at a time, by the number of threads."""

import pytest
import torch

from hpcgnn.ops.row_tiles import EDGE_TILE_BYTES, edge_tile_bytes


@pytest.mark.parametrize("threads, shares", [(1, 1), (2, 1), (7, 1), (8, 8), (48, 48), (64, 64), (128, 64)])
def test_few_threads_share_a_tile_and_many_have_one_each(threads, shares):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert edge_tile_bytes() == shares * EDGE_TILE_BYTES
    finally:
        torch.set_num_threads(before)
