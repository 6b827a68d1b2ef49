"""Who sends how much to whom in which round: plain arithmetic, the same on every rank, tested without MPI.

Halo rows are ordered by *ring offset* k = 1 .. P-1: at offset k a rank receives from rank - k and sends to rank + k
(modulo P). The rows of all offsets, one after another, are cut at the same places on all ranks. So in a round no rank
receives or sends more rows than the cap. A place is (offset, row). If a rank has fewer rows at this offset, all of them
come before it. With a cap of 5 rows, of three ranks that receive

    offset          1        2
    by rank 0       4        2
    by rank 1       1        3
    by rank 2       5        1
    rounds   [1:0-3] [1:3-5, 2:0-3]

rank 1 has all its rows of offset 1 in the first round. A cut of the sum of the most rows of each offset would make more
rounds with more ranks, since at each offset another rank has most. So one option spans the one-shot exchange (a large
cap: one round), SAR (about the rows of one peer), and pieces of a peer.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

# A place as one number: so many times the offset, and the row.
_OFFSET = 1 << 40
_TRIES = 3  # to make rounds as long as each other


class Segment(NamedTuple):
    """Rows start..stop (half open) of the rows received at one ring offset."""

    offset: int
    start: int
    stop: int


def within(segments: Sequence[Segment], counts: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """int64 (m,) each: the first, and one past the last, of the rows of each segment among the rows of a rank that has
    `counts` of them at ring offset 1, 2, …, int64 (P - 1,), one after another up to `ends`.
    """
    offset, start, stop = np.fromiter(itertools.chain.from_iterable(segments), np.int64).reshape(-1, 3).T
    rows = counts[offset - 1]
    first = ends[offset - 1] - rows
    return first + np.minimum(start, rows), first + np.minimum(stop, rows)


class Rounds(NamedTuple):
    """segments: of each round, in ring order; sizes: rows of each on the rank that receives or sends most in it."""

    segments: list[tuple[Segment, ...]]
    sizes: list[int]

    @property
    def longest(self) -> int:
        """Rows of the longest round."""
        return max(self.sizes, default=0)


class Sides:
    """The rows of some sides by ring offset. A side is one rank's received rows, or its sent rows.

    side, offset, rows: int64 (m,) each, 0 <= side < number, of all with rows, each pair once. size: P.
    """

    def __init__(self, side: np.ndarray, offset: np.ndarray, rows: np.ndarray, number: int, size: int) -> None:
        self._end = size * _OFFSET
        # A last one for who would look further: it has no side.
        self._key = np.append(side * (size + 1) + offset, number * (size + 1))
        order = np.argsort(self._key, kind="stable")
        self._key = self._key[order]
        self._offset, self._rows = np.append(offset, 0)[order], np.append(rows, 0)[order]
        self._before = np.cumsum(self._rows) - self._rows
        self._first_key = np.arange(number) * (size + 1)
        edges = np.searchsorted(self._key, np.append(self._first_key, number * (size + 1)))
        self._starts, self._all = self._before[edges[:-1]], self._before[edges[1:]]

    def taken(self, place: int) -> np.ndarray:
        """int64 (number,): the rows of each side before a place."""
        offset, row = divmod(place, _OFFSET)
        wanted = self._first_key + offset
        at = np.searchsorted(self._key, wanted)
        here = np.where(self._key[at] == wanted, np.minimum(self._rows[at], row), 0)
        return self._before[at] + here - self._starts

    def furthest(self, place: int, cap: int) -> int:
        """The last place up to which no side has more than `cap` rows from `place` on."""
        target = self._starts + self.taken(place) + cap
        left = target < self._all
        if not left.any():
            return self._end
        target = target[left]
        at = np.searchsorted(self._before, target, side="right") - 1  # the last that begins before it, and has rows
        return int((self._offset[at] * _OFFSET + target - self._before[at]).min())

    def sizes(self, stops: Sequence[int]) -> np.ndarray:
        """int64: of the rounds that end at these places, the rows of the side that has most."""
        taken = [np.zeros_like(self._starts), *(self.taken(stop) for stop in stops)]
        return np.array([(after - before).max(initial=0) for before, after in itertools.pairwise(taken)], np.int64)


def cut(furthest: Callable[[int, int], int], most: int, cap: int, size: int) -> list[int]:
    """The places where the rounds end: the fewest rounds of at most `cap` rows, of about equal length.

    Every round costs a pass over the rows that it adds to.

    Args:
        furthest: the function of all Sides together, so collective if each rank knows its own.
        most: rows of the side with most in all.
        cap: rows, at least 1.
        size: P.
    """
    if cap < 1:
        raise ValueError(f"expected a cap of at least one row, got {cap}")
    if most == 0:
        return []

    def stops(cap: int) -> list[int]:
        found = [_OFFSET]
        while found[-1] < size * _OFFSET:
            found.append(furthest(found[-1], cap))
        return found[1:]

    found, high = stops(cap), cap
    least = -(-most // len(found))
    for attempt in range(_TRIES if len(found) > 1 else 0):
        middle = least if attempt == 0 else (least + high) // 2
        if middle >= high:
            break
        tried = stops(middle)
        if len(tried) == len(found):
            found, high = tried, middle
        else:
            least = middle + 1
    return found


def segments(stops: Sequence[int], max_rows: Sequence[int]) -> list[tuple[Segment, ...]]:
    """The segments of rounds that end at these places; offsets without rows do not appear.

    max_rows: for each ring offset 1, 2, …, the most rows of any rank.
    """
    found, start = [], _OFFSET
    for stop in stops:
        (first, begin), (last, end) = divmod(start, _OFFSET), divmod(stop, _OFFSET)
        parts = []
        for offset in range(first, min(last, len(max_rows)) + 1):
            rows = (begin if offset == first else 0), (end if offset == last else max_rows[offset - 1])
            if rows[1] > rows[0]:
                parts.append(Segment(offset, *rows))
        found.append(tuple(parts))
        start = stop
    return found


def coalesce(sizes: Sequence[int], cap: int) -> list[list[int]]:
    """Group consecutive rounds for rows that are narrower than those the rounds were cut for.

    sizes: of the rounds. cap: rows, at least as many as any of them has.
    Returns a list of lists of round indices; each group has at most `cap` rows.
    """
    groups: list[list[int]] = []
    free = 0
    for index, rows in enumerate(sizes):
        if rows > free or not groups:
            groups.append([])
            free = cap
        groups[-1].append(index)
        free -= rows
    return groups


def merge(segments: Iterable[Segment]) -> list[Segment]:
    """Join adjoining row ranges of the same offset, so that a peer gets one message per group of rounds."""
    merged: list[Segment] = []
    for segment in segments:
        if merged and merged[-1].offset == segment.offset and merged[-1].stop == segment.start:
            merged[-1] = merged[-1]._replace(stop=segment.stop)
        else:
            merged.append(segment)
    return merged
