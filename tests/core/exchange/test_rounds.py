"""The rounds, and their grouping for narrower rows: every row exactly once, in order, and never more than fit on any
rank, received or sent.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcgnn.exchange.rounds import Rounds, Sides, coalesce, cut, merge, segments

CAP = st.integers(1, 30)


@st.composite
def halos(draw):
    """int64 (P, P - 1): the rows that each rank receives at each ring offset."""
    ranks = draw(st.integers(1, 6))
    rows = st.one_of(st.just(0), st.integers(0, 40))
    count = ranks * (ranks - 1)
    return np.array(draw(st.lists(rows, min_size=count, max_size=count)), np.int64).reshape(ranks, ranks - 1)


def sent(received):
    """The same of the rows that each rank sends."""
    ranks = len(received)
    return np.array([[received[(s + k) % ranks, k - 1] for k in range(1, ranks)] for s in range(ranks)]).reshape(
        received.shape
    )


def sides_of(*rows):
    """Sides of arrays (ranks, P - 1)."""
    rows = np.concatenate(rows)
    side, offset = np.nonzero(rows)
    return Sides(side, offset + 1, rows[side, offset], len(rows), rows.shape[1] + 1)


def rounds(received, cap):
    """The Rounds, agreed as in a job: every rank knows its own rows, and the least and the largest of all numbers."""
    ranks, both = len(received), (received, sent(received))
    mine = [sides_of(*(each[rank : rank + 1] for each in both)) for rank in range(ranks)]
    most = max(int(each.sum(1).max(initial=0)) for each in both)
    stops = cut(lambda place, rows: min(each.furthest(place, rows) for each in mine), most, cap, ranks)
    sizes = np.max([each.sizes(stops) for each in mine], 0)
    return Rounds(segments(stops, received.max(0, initial=0).tolist()), sizes.tolist())


def taken(round_, rows):
    """How many of its rows (P - 1,) a side has in a round."""
    return sum(max(0, min(s.stop, int(rows[s.offset - 1])) - s.start) for s in round_)


def fewest(received, cap):
    """How many rounds there must be: row after row, a new one where it would be too many for any side."""
    both, count = np.concatenate([received, sent(received)]), 0
    filled = np.full(len(both), cap + 1)
    for offset in range(both.shape[1]):
        for row in range(int(both[:, offset].max())):
            one = both[:, offset] > row
            if (filled[one] >= cap).any():
                filled, count = np.zeros(len(both), int), count + 1
            filled = filled + one
    return count


def rows_of(segments):
    return [(s.offset, row) for s in segments for row in range(s.start, s.stop)]


@given(halos(), CAP)
def test_every_row_once_and_in_ring_order_in_the_fewest_rounds_within_the_cap(received, cap):
    """A round costs a pass over the rows that it adds to."""
    made = rounds(received, cap)
    expected = [(offset, row) for offset, count in enumerate(received.max(0, initial=0), 1) for row in range(count)]
    assert [row for round_ in made.segments for row in rows_of(round_)] == expected
    for round_, size in zip(made.segments, made.sizes, strict=True):
        assert max(taken(round_, rows) for each in (received, sent(received)) for rows in each) == size
        assert 0 < size <= cap and all(s.stop > s.start for s in round_)
    assert made.longest == max(made.sizes, default=0)
    assert len(made.sizes) == fewest(received, cap)


@given(st.integers(0, 200), CAP)
def test_rounds_of_two_ranks_are_as_long_as_each_other(count, cap):
    sizes = rounds(np.array([[count], [count // 2]]), cap).sizes
    assert len(sizes) == -(-count // cap)
    assert all(rows == sizes[0] for rows in sizes[:-1])
    assert not sizes or sizes[0] == -(-count // len(sizes)), "nor is the last one needlessly short"


@given(halos(), CAP, st.integers(0, 60))
def test_groups_keep_the_order_and_their_cap_and_a_peer_has_one_message_in_each(received, cap, more):
    made = rounds(received, cap)
    groups = coalesce(made.sizes, cap + more)
    assert [index for group in groups for index in group] == list(range(len(made.sizes)))
    for group in groups:
        assert group and sum(made.sizes[index] for index in group) <= cap + more
        parts = [s for index in group for s in made.segments[index]]
        merged = merge(parts)
        assert rows_of(merged) == rows_of(parts)
        assert len({s.offset for s in merged}) == len(merged)


def test_peers_of_thousands_of_ranks_do_not_add_up():
    """Every rank has rows of other offsets: the most of each offset would add up to one for each rank."""
    received = np.zeros((300, 299), np.int64)
    for rank in range(300):
        received[rank, np.random.default_rng(rank).permutation(299)[:9]] = 1
    assert int(received.max(0).sum()) > 250 and len(rounds(received, 30).sizes) == 1


def test_a_cap_below_one_row_is_an_error():
    with pytest.raises(ValueError, match="at least one row"):
        rounds(np.array([[1], [0]]), 0)
