"""Edges on their way through a sort: a key of two node ids, and the edge's data.

A key is (row * n + column), one int64. Sorted records have ascending keys. Equal keys are ordered by type, then by
weight on request, and then by the rows of features: the canonical order of edges.py.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from partition_tools.graph.edges import sorted_order

#: Of a long vector so many elements are worked on at a time, which stay in the cache.
CACHED = 1 << 15
#: So many sorted runs, and more, are sorted as if they were not: merging them takes longer.
MANY = 12


@dataclass
class Records:
    """key: int64 (m,). kind: int32 (m,) or None. weight: float32 (m,) or None. row: int64 (m,) or None, see `Edges`."""

    key: np.ndarray
    kind: np.ndarray | None = None
    weight: np.ndarray | None = None
    row: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.key)

    def take(self, rows: np.ndarray | slice) -> "Records":
        """Some of the records: by a mask, by numbers, or a slice."""
        return Records(self.key[rows], *(None if a is None else a[rows] for a in (self.kind, self.weight, self.row)))

    def sort(self, by_weight: bool, runs: int = MANY) -> "Records":
        """The records sorted, stable for equal ones; `self` is used up. runs: how many sorted runs they are."""
        if self.kind is None and self.weight is None and self.row is None:
            self.key.sort(kind="stable" if runs < MANY else "quicksort")  # numpy's stable sort merges runs
            return self
        return self.take(sorted_order(self.key, self.kind, self.weight if by_weight else None, self.row))


def keys_of(start: int, stop: int, function: Callable[[int, int], np.ndarray]) -> np.ndarray:
    """int64 (stop - start,): function(start, stop), of `CACHED` at a time."""
    keys = np.empty(stop - start, np.int64)
    for first in range(start, stop, CACHED):
        keys[first - start : first - start + CACHED] = function(first, min(first + CACHED, stop))
    return keys


def joined(parts: Sequence[Records]) -> Records:
    """Records one after another."""
    kinds, weights, rows = ([getattr(part, name) for part in parts] for name in ("kind", "weight", "row"))
    return Records(np.concatenate([part.key for part in parts]), _joined(kinds), _joined(weights), _joined(rows))


def _joined(arrays: Sequence[np.ndarray | None]) -> np.ndarray | None:
    there = [array for array in arrays if array is not None]
    return np.concatenate(there) if there else None
