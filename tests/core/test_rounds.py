"""The list of rounds, and its grouping for narrower rows: every row exactly once, in order, never more than fit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcgnn.exchange.rounds import Segment, coalesce, merge, rounds

ROWS = st.lists(st.integers(0, 40), max_size=12)
CAP = st.integers(1, 30)


def rows_of(segments):
    return [(s.offset, row) for s in segments for row in range(s.start, s.stop)]


def size(round_):
    return sum(s.stop - s.start for s in round_)


@given(ROWS, CAP)
def test_every_row_exactly_once_and_in_ring_order(max_rows, cap):
    expected = [(offset, row) for offset, count in enumerate(max_rows, 1) for row in range(count)]
    assert [row for round_ in rounds(max_rows, cap) for row in rows_of(round_)] == expected


@given(ROWS, CAP)
def test_no_round_is_empty_or_larger_than_the_cap(max_rows, cap):
    assert all(0 < size(round_) <= cap and all(s.stop > s.start for s in round_) for round_ in rounds(max_rows, cap))


@given(ROWS, CAP)
def test_the_fewest_rounds_and_all_as_long(max_rows, cap):
    """A round costs a pass over the rows that it adds to, and the longest one decides the buffers."""
    sizes = [size(round_) for round_ in rounds(max_rows, cap)]
    assert len(sizes) == -(-sum(max_rows) // cap)
    assert all(rows == sizes[0] for rows in sizes[:-1])
    assert not sizes or sizes[0] == -(-sum(max_rows) // len(sizes)), "nor is the last one needlessly short"


@given(ROWS, CAP, st.integers(0, 60))
def test_groups_keep_the_order_and_their_cap(max_rows, cap, more):
    made = rounds(max_rows, cap)
    groups = coalesce(made, cap + more)
    assert [index for group in groups for index in group] == list(range(len(made)))
    assert all(group and sum(size(made[index]) for index in group) <= cap + more for group in groups)


@given(ROWS, CAP, st.integers(0, 60))
def test_a_peer_has_one_message_in_a_group(max_rows, cap, more):
    made = rounds(max_rows, cap)
    for group in coalesce(made, cap + more):
        segments = [s for index in group for s in made[index]]
        merged = merge(segments)
        assert rows_of(merged) == rows_of(segments)
        assert len({s.offset for s in merged}) == len(merged)


def test_the_example_of_the_docstring():
    assert rounds([12, 2, 3, 1], 5) == [
        (Segment(1, 0, 5),),
        (Segment(1, 5, 10),),
        (Segment(1, 10, 12), Segment(2, 0, 2), Segment(3, 0, 1)),
        (Segment(3, 1, 3), Segment(4, 0, 1)),
    ]


def test_a_large_cap_is_the_one_shot_exchange():
    assert len(rounds([7, 0, 9], 1000)) == 1


def test_nothing_to_exchange():
    assert rounds([], 5) == rounds([0, 0], 5) == [] and coalesce([], 0) == []


def test_a_cap_below_one_row_is_an_error():
    with pytest.raises(ValueError, match="at least one row"):
        rounds([1], 0)
