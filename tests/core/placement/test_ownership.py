"""Who owns which node, against looking it up one by one; and the size of blocks of edges."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hpcgnn.graph.blocks import halo_blocks
from hpcgnn.placement.ownership import Ownership


@st.composite
def maps(draw):
    sizes = draw(st.lists(st.integers(0, 5), min_size=1, max_size=10))
    ranks = draw(st.integers(1, 5))
    return (
        np.array(sizes),
        np.array(draw(st.lists(st.integers(0, ranks - 1), min_size=len(sizes), max_size=len(sizes))), np.int32),
        ranks,
    )


@given(maps())
def test_ownership(case):
    sizes, cluster_to_rank, ranks = case
    ownership = Ownership(np.concatenate([[0], np.cumsum(sizes)]), cluster_to_rank, ranks)
    owner_of = np.repeat(cluster_to_rank, sizes)
    owner, local_id = ownership.locate(np.arange(sizes.sum()))
    assert owner.tolist() == owner_of.tolist()
    for rank in range(ranks):
        mine = np.flatnonzero(owner_of == rank)
        assert ownership.counts[rank] == len(mine)
        assert local_id[mine].tolist() == list(range(len(mine))), "local ids keep the order of the file"
        ranges = ownership.ranges(rank)
        assert [node for start, stop in ranges for node in range(start, stop)] == mine.tolist()
        assert all(stop > start for start, stop in ranges)
        assert all(one[1] < other[0] for one, other in zip(ranges, ranges[1:])), "adjoining slabs are joined"


def indptr_of(rows, num_rows):
    return np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=num_rows))]).astype(np.int64)


def test_the_size_of_halo_blocks_does_not_grow_with_their_number():
    """A row pointer over all own rows in each of P blocks would cost 8 n bytes on every rank, whatever P is."""
    edges = 100
    indptr, halo = indptr_of(np.arange(edges) % 50, 50), np.arange(edges)
    few, many = (
        sum(b.nbytes for b in halo_blocks(np.linspace(0, edges, n + 1, dtype=np.int64), indptr, halo, None))
        for n in (2, 50)
    )
    assert many <= few + 50 * 8 + edges * (8 + 4)
