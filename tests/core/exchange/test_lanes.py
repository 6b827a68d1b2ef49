"""Lanes between nodes: both ends agree, every row is in one of them."""

import numpy as np
import pytest

from hpcgnn.exchange.nodes import Peers, cap_of_nodes

LAYOUTS = {"even": [4, 4, 4], "uneven": [1, 3, 2, 5], "ranks": [1, 1, 1], "one node": [3]}


def peers_of(sizes, members=None):
    """{rank: Peers} of nodes of so many ranks."""
    members = np.arange(sum(sizes), dtype=np.int32) if members is None else members
    first, made = np.append(0, np.cumsum(sizes)), {}
    for number in range(len(sizes)):
        for place in range(sizes[number]):
            made[int(members[first[number] + place])] = Peers(members, first, number, place)
    return made


@pytest.mark.parametrize("rows", [0, 1, 2, 7, 64])
@pytest.mark.parametrize("sizes", LAYOUTS.values(), ids=LAYOUTS)
def test_both_ends_agree(sizes, rows):
    members = np.random.default_rng(1).permutation(sum(sizes)).astype(np.int32)
    for rank, mine in (all_peers := peers_of(sizes, members)).items():
        assert mine.rank == rank and mine.source(0) == mine.number
        for offset in range(1, mine.size):
            lanes = mine.outgoing(offset, 10, rows)
            other = all_peers[mine.of(mine.dest(offset))[0]]
            assert lanes == other.incoming(offset, 10, rows)
            assert [row for lane in lanes for row in range(lane.start, lane.stop)] == list(range(10, 10 + rows))
            assert {lane.sender for lane in lanes} <= set(mine.ranks)
            assert {lane.receiver for lane in lanes} <= set(other.ranks)
            # Of each rank one lane, of as many rows as the others.
            assert len({lane.sender for lane in lanes}) == len(lanes) == min(rows, len(mine.ranks))


@pytest.mark.parametrize("sizes", LAYOUTS.values(), ids=LAYOUTS)
def test_each_pair_of_nodes_has_two_planners(sizes):
    all_peers = peers_of(sizes)
    for mine in all_peers.values():
        for offset in mine.planned(mine.place):
            assert mine.planner(mine.number, offset) == mine.rank
    for number in range(len(sizes)):
        ranks = [each for each in all_peers.values() if each.number == number]
        planned = sorted(offset for each in ranks for offset in each.planned(each.place))
        assert planned == list(range(1, len(sizes)))


def test_the_rounds_of_nodes_fit_their_buffers():
    """As HaloBuffers asks: 3 buffers of rows, 2 of what comes back, and 2 for each rank that adds what returns."""
    for fewest, ranks in ((1, 1), (2, 2), (2, 5), (8, 8)):
        assert cap_of_nodes(100, fewest, False, False) == 100 * fewest
        for row, back in ((4, 4), (64, 8), (4, 64)):
            limit, cap = 10_000, 10_000 // (3 * row + 4 * back)
            rows = cap_of_nodes(cap, fewest, True, False)
            assert rows * (3 * row + 2 * back * (1 + ranks)) <= ranks * limit
    assert cap_of_nodes(100, 8, True, True) == 100
