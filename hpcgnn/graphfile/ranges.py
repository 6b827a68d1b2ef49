"""Selected rows of a dataset, in as few reads as its chunks allow.

HDF5 reads and checks whole chunks. A map that scatters the nodes needs a row here and a row there, so separate reads
would go over the same chunk a thousand times. Rows with touching chunks are read as one piece and picked from it.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

CHUNK_BYTES = 1 << 20
# Full chunks that are read at a time: what is held besides the result. Of smaller ones there are as many more.
MOST_CHUNKS = 8


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


def indptr_of(indptr: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """int64: row pointers of the CSR matrix of the chosen entries alone, bool (E,)."""
    found = np.zeros(len(indptr), np.int64)
    for first, last in row_blocks(indptr):
        before = np.concatenate([[0], np.cumsum(chosen[indptr[first] : indptr[last]])])
        found[first + 1 : last + 1] = found[first] + before[indptr[first + 1 : last + 1] - indptr[first]]
    return found


def pieces(ranges: Iterable[tuple[int, int]], chunk_rows: int, chunk_bytes: int = CHUNK_BYTES) -> Iterator[Piece]:
    """Yield the Pieces to read for `ranges`, in this order, without empty ranges.

    Args:
        ranges: wanted (start, stop).
        chunk_rows: rows of a chunk. With ascending ranges, no chunk is in two pieces.
        chunk_bytes: of a chunk.
    """
    most = chunk_rows * max(MOST_CHUNKS, MOST_CHUNKS * CHUNK_BYTES // max(1, chunk_bytes))
    taken: list[tuple[int, int]] = []
    for start, stop in ranges:
        while start < stop:
            end = min(stop, start - start % most + most)  # a piece has no more than the chunks between two multiples
            if taken:
                (first, _), (before, last) = taken[0], taken[-1]
                touching = before <= start and start // chunk_rows <= (last - 1) // chunk_rows + 1
                if not touching or start // most != first // most:
                    yield Piece(first, max(stop for _, stop in taken), taken)
                    taken = []
            taken.append((start, end))
            start = end
    if taken:
        yield Piece(taken[0][0], max(stop for _, stop in taken), taken)
