"""What counts as memory that is handed out anew in each epoch."""

import mmap

import pytest
import torch

from hpcgnn.estimate.trial.page_faults import Fresh
from hpcgnn.plugins.memory_profile import MMAP_THRESHOLD

ROWS = MMAP_THRESHOLD // (4 * 64)


def pages(fresh, *made, given=()):
    fresh.look(given, made)
    return fresh.pages


def test_large_tensors_that_are_new():
    large, small = torch.empty(ROWS, 64), torch.empty(ROWS - 1, 64)
    assert pages(Fresh(10 * ROWS), large, small, [large[:5]]) == MMAP_THRESHOLD / mmap.PAGESIZE
    assert pages(Fresh(10 * ROWS), large.view(-1), large, given={"out": large}) == 0, "it was written to"


@pytest.mark.parametrize("rows, whole", [(500, True), (200, False), (40, True)])
def test_tensors_that_are_large_on_the_rank(rows, whole):
    """Those with a row for each node of a copy grow with the rank, those of a tile with its tiles, others do not."""
    fresh = Fresh(500, factor=0.01, tile=40, whole_tile=40_000)
    made = torch.empty(rows, 64)
    assert pages(fresh, made) == (made.nbytes / mmap.PAGESIZE if whole else 0)


def test_layers_of_some_rows():
    """Fewer rows than there are nodes, but more bytes than a tile of edges has."""
    made = torch.empty(ROWS * 3 // 4, 64)
    assert pages(Fresh(2 * ROWS, factor=0.5, tile=100), made) == made.nbytes / mmap.PAGESIZE
    assert pages(Fresh(2 * ROWS, factor=1.0, tile=100), made) == 0
