"""The distinct ids of a graph and the place of each among them, for more ids than memory holds.

Edges name each node many times, so the distinct ids are far fewer. They are found block by block. If ids lie close to
one another, a table over their range gives the place; otherwise a binary search does.
"""

import functools
from collections.abc import Iterator, Sequence

import numpy as np

from partition_tools.graph.counts import BLOCK, blocks
from partition_tools.workspace.scratch import Scratch

# A table over the range of ids may take this part of the memory.
SHARE = 4


def distinct(ids: Sequence[np.ndarray], scratch: Scratch) -> np.ndarray:
    """The sorted distinct elements of all vectors, of integers of one kind or of text. Memory: 16 bytes for each, and a
    part of `scratch.memory`.
    """
    if not ids:
        return np.zeros(0, np.int64)
    if any(each.dtype.kind == "U" for each in ids):
        return np.unique(np.concatenate([np.unique(each) for each in ids]))
    low, high = _range(ids)
    if low >= 0 and high - low < min(scratch.memory // SHARE, 8 * sum(map(len, ids))):
        there = np.zeros(high - low + 1, bool)
        for each in ids:
            for block in _blocks(each, scratch):
                there[(block - low).astype(np.int64, copy=False)] = True
        dtype = ids[0].dtype
        return np.flatnonzero(there).astype(dtype) + dtype.type(low)
    parts, held = [np.zeros(0, ids[0].dtype)], 0
    for each in ids:
        for block in _blocks(each, scratch):
            parts.append(np.unique(block))
            held += parts[-1].nbytes
            if held > max(scratch.memory // SHARE, 2 * parts[0].nbytes):
                parts, held = [np.unique(np.concatenate(parts))], 0
    return np.unique(np.concatenate(parts))


def _blocks(array: np.ndarray, scratch: Scratch) -> Iterator[np.ndarray]:
    return blocks(array, min(BLOCK, max(scratch.memory // 64, 1 << 10)))


def _range(ids: Sequence[np.ndarray]) -> tuple[int, int]:
    limits = [limit for each in ids if len(each) for limit in (int(each.min()), int(each.max()))]
    return min(limits, default=0), max(limits, default=-1)


class Places:
    """Places in `names`, sorted and distinct; call it with a vector of them and a name in the scratch directory."""

    def __init__(self, names: np.ndarray, scratch: Scratch) -> None:
        self.names, self.scratch = names, scratch

    @functools.cached_property
    def table(self) -> np.ndarray | None:
        """The place of each id from the smallest to the largest (undefined where there is none), if that is small."""
        if self.names.dtype.kind not in "iu" or not len(self.names) or self.names[0] < 0:
            return None
        kind = np.int32 if len(self.names) < 2**31 else np.int64
        width = int(self.names[-1]) - int(self.names[0]) + 1
        if width * np.dtype(kind).itemsize > self.scratch.memory // SHARE or width > 64 * len(self.names):
            return None
        table = np.zeros(width, kind)
        table[(self.names - self.names[0]).astype(np.int64, copy=False)] = np.arange(len(self.names), dtype=kind)
        return table

    def __call__(self, ids: np.ndarray, name: str) -> np.ndarray:
        """int64 of the shape of `ids`: in memory, or mapped where it is a large part of it. All ids must be there."""
        if ids.dtype.kind == "U":
            return np.searchsorted(self.names, ids)
        if 8 * len(ids) <= self.scratch.memory // SHARE:
            return self._of(ids).astype(np.int64, copy=False)
        key = f"source/place-of-{name}"
        if not self.scratch.done(key):
            with self.scratch.array(key, ids.shape, np.int64) as places:
                for source, target in zip(_blocks(ids, self.scratch), _blocks(places, self.scratch), strict=True):
                    target[:] = self._of(source)
        return self.scratch.load(key)

    def _of(self, ids: np.ndarray) -> np.ndarray:
        if self.table is None:
            return np.searchsorted(self.names, ids)
        return self.table[(ids - self.names[0]).astype(np.int64, copy=False)]
