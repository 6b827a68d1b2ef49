"""Selected rows of a dataset, in as few reads as its chunks allow.

HDF5 reads and checks whole chunks. A map that scatters the nodes needs a row here and a row there, so separate reads
would go over the same chunk a thousand times. Rows with touching chunks are read as one piece and picked from it.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

# Full chunks of a piece that is picked from: what is held besides the result. Of smaller ones it has as many more.
MOST_CHUNKS = 2


class Piece(NamedTuple):
    """Rows [start, stop) of a dataset.

    Attributes:
        ranges: wanted rows in it, [(start, stop)], in their order.
    """

    start: int
    stop: int
    ranges: list[tuple[int, int]]

    @property
    def whole(self) -> bool:
        """Whether it is wanted as it is."""
        return len(self.ranges) == 1

    @property
    def num_rows(self) -> int:
        """How many rows are wanted."""
        return sum(stop - start for start, stop in self.ranges)

    def rows(self) -> np.ndarray:
        """int64: the rows that are wanted, counted from the first of the piece."""
        starts, stops = np.array(self.ranges, np.int64).T
        return segments(starts - self.start, stops - starts)


def segments(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The positions of many runs one after another: starts[0], starts[0] + 1, ..., starts[1], ... int64 (sum of
    counts,)."""
    stops = np.cumsum(counts)
    return np.repeat(starts - (stops - counts), counts) + np.arange(stops[-1] if len(stops) else 0)


def permuted_rows(indptr: np.ndarray, order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(indptr int64, which entries these are int64) of the CSR matrix whose row i is row order[i] of that given."""
    counts = np.diff(indptr)[order]
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), segments(indptr[:-1][order], counts)


def edge_rows(indptr: np.ndarray, start: int, stop: int) -> np.ndarray:
    """int64 (stop - start,): the rows of the edges start … stop of a CSR matrix."""
    if stop <= start:
        return np.zeros(0, np.int64)
    first, last = np.searchsorted(indptr, [start, stop - 1], side="right") - 1
    bounds = np.clip(indptr[first : last + 2], start, stop)
    return np.repeat(np.arange(first, last + 1, dtype=np.int64), np.diff(bounds))


def row_blocks(indptr: np.ndarray, most: int = 1 << 16) -> Iterator[tuple[int, int]]:
    """Yield (first, last) of consecutive rows of a CSR matrix, in order, with at most `most` entries together.

    A single row may have more.
    """
    first, rows = 0, len(indptr) - 1
    while first < rows:
        last = int(np.searchsorted(indptr, indptr[first] + most, side="right")) - 1
        last = min(max(last, first + 1), first + most, rows)
        yield first, last
        first = last


def pieces(
    ranges: Iterable[tuple[int, int]], chunk_rows: int, most_rows: int, most_chunks: int = MOST_CHUNKS
) -> Iterator[Piece]:
    """Yield the Pieces to read for `ranges`, in this order, without empty ranges.

    Args:
        ranges: wanted (start, stop).
        chunk_rows: rows of a chunk. With ascending ranges, no chunk is in two pieces.
        most_rows: largest piece that is used as a whole.
        most_chunks: largest piece, in chunks, that rows are picked from.
    """
    taken: list[tuple[int, int]] = []
    limit = 0
    for start, stop in ranges:
        if stop <= start:
            continue
        if taken:
            near = start // chunk_rows <= (taken[-1][1] - 1) // chunk_rows + 1
            if near and taken[-1][0] <= start < limit:  # what is left of the range begins with a chunk
                taken.append((start, min(stop, limit)))
                start = min(stop, limit)
                if start == stop:
                    continue
            yield from _cut(taken, chunk_rows, most_rows)
        taken, limit = [(start, stop)], (start // chunk_rows + most_chunks) * chunk_rows
        if stop > limit:  # a chunk at its end may have more that is wanted
            last = stop - stop % chunk_rows
            yield from _cut([(start, last)], chunk_rows, most_rows)
            taken, limit = [(last, stop)] if last < stop else [], last + most_chunks * chunk_rows
    if taken:
        yield from _cut(taken, chunk_rows, most_rows)


def _cut(taken: list[tuple[int, int]], chunk_rows: int, most_rows: int) -> Iterator[Piece]:
    """The Piece of these ranges; a single range in pieces of most_rows rows, which end where chunks do if that leaves
    anything.
    """
    start, stop = taken[0][0], max(stop for _, stop in taken)
    if len(taken) > 1:
        yield Piece(start, stop, taken)
        return
    while start < stop:
        last = min(start + most_rows, stop)
        if last < stop and last - last % chunk_rows > start:
            last -= last % chunk_rows
        yield Piece(start, last, [(start, last)])
        start = last
