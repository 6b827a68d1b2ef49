"""Who owns which node, against looking it up one by one; and the blocks of edges against a dense matrix."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hpcgnn.exchange import grouping
from hpcgnn.graph.blocks import halo_blocks, own_block
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


@given(
    st.integers(0, 2**32 - 1), st.integers(1, 8), st.integers(0, 40), st.booleans(), st.sampled_from([1, 3, 1 << 18])
)
def test_blocks_hold_each_edge_once(seed, num_rows, num_edges, weighted, together):
    random = np.random.default_rng(seed)
    widths = random.integers(0, 4, 5)  # halo rows of each round, some rounds being empty here
    starts = np.concatenate([[0], np.cumsum(widths)])
    rows = np.sort(random.integers(0, num_rows, num_edges)).astype(np.int32)
    halo = random.integers(0, max(1, starts[-1]), num_edges) if starts[-1] else np.zeros(0, np.int64)
    rows = rows[: len(halo)]
    weight = torch.from_numpy(random.random(len(rows))) if weighted else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grouping, "_BLOCK", together)
        blocks = halo_blocks(starts, indptr_of(rows, num_rows), halo, weight)
    dense = np.zeros((num_rows, starts[-1]))
    for block, start in zip(blocks, starts):
        assert (np.diff(block.rows.numpy()) > 0).all() and (np.diff(block.indptr.numpy()) > 0).all(), (
            "only rows with edges are stored"
        )
        at = np.repeat(block.rows.numpy(), np.diff(block.indptr.numpy()))
        np.add.at(dense, (at, block.indices.numpy() + start), 1.0 if weight is None else block.weight.numpy())
    expected = np.zeros_like(dense)
    np.add.at(expected, (rows, halo), 1.0 if weight is None else weight.numpy())
    np.testing.assert_array_equal(dense, expected)
    assert len(blocks) == 5 and sum(block.num_edges for block in blocks) == len(rows)


def test_the_size_of_halo_blocks_does_not_grow_with_their_number():
    """A row pointer over all own rows in each of P blocks would cost 8 n bytes on every rank, whatever P is."""
    edges = 100
    indptr, halo = indptr_of(np.arange(edges) % 50, 50), np.arange(edges)
    few, many = (
        sum(b.nbytes for b in halo_blocks(np.linspace(0, edges, n + 1, dtype=np.int64), indptr, halo, None))
        for n in (2, 50)
    )
    assert many <= few + 50 * 8 + edges * (8 + 4)


def test_own_block_has_all_rows():
    block = own_block(4, np.array([1, 1, 3], np.int32), np.array([0, 2, 3], np.int32), None)
    assert block.indptr.tolist() == [0, 0, 2, 2, 3] and block.rows is None and block.num_edges == 3
