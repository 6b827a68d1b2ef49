"""Who sends how much to whom in which round: plain arithmetic, the same on every rank, tested without MPI.

Halo rows are ordered by *ring offset* k = 1 .. P-1: at offset k a rank receives from rank - k and sends to rank + k
(modulo P). With at most `max_rows[k-1]` rows at offset k on any rank, and a cap of 5 rows, the rows of all offsets, one
after another, are cut into as few equal rounds as that allows:

    offset      1                    2        3        4
    max_rows    12                   2        3        1
    rounds   [1:0-5]  [1:5-10]  [1:10-12, 2:0-2, 3:0-1]  [3:1-3, 4:0-1]

So one knob spans everything from the one-shot exchange (a large cap: one round) over SAR (about as much as one peer
has) to pieces of a peer. A rank with fewer rows than the maximum simply sends shorter or no messages in a round. No
rank receives or sends more than a round's rows at a time, since in a round all ranks are at the same offsets.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Segment(NamedTuple):
    """Rows start..stop (half open) of what is received at one ring offset."""

    offset: int
    start: int
    stop: int


def rounds(max_rows: Sequence[int], cap: int) -> list[tuple[Segment, ...]]:
    """Cut the halo into rounds of at most `cap` rows.

    max_rows: for each ring offset 1, 2, …, the largest number of halo rows of any rank. cap: rows, at least 1.
    Returns a list of rounds, each a tuple of segments in ring order: the fewest possible, each of as many rows (the
    last one maybe fewer), since every round costs a pass over the rows that it adds to. Offsets without rows on any
    rank do not appear.
    """
    if cap < 1:
        raise ValueError(f"expected a cap of at least one row, got {cap}")
    total = sum(max_rows)
    length = -(-total // -(-total // cap)) if total else cap
    result: list[list[Segment]] = []
    free = 0
    for offset, rows in enumerate(max_rows, start=1):
        start = 0
        while start < rows:
            if free == 0:
                result.append([])
                free = length
            stop = min(rows, start + free)
            result[-1].append(Segment(offset, start, stop))
            free -= stop - start
            start = stop
    return [tuple(round_) for round_ in result]


def longest(rounds: Iterable[tuple[Segment, ...]]) -> int:
    """Rows of the longest of these rounds, on the rank that receives most in it."""
    return max((sum(segment.stop - segment.start for segment in round_) for round_ in rounds), default=0)


def coalesce(fine: Sequence[tuple[Segment, ...]], cap: int) -> list[list[int]]:
    """Group consecutive rounds for rows that are narrower than those the rounds were cut for.

    fine: list of rounds. cap: rows, at least as many as any of them has.
    Returns a list of lists of round indices; each group has at most `cap` rows.
    """
    groups: list[list[int]] = []
    free = 0
    for index, round_ in enumerate(fine):
        rows = sum(segment.stop - segment.start for segment in round_)
        if rows > free:
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
