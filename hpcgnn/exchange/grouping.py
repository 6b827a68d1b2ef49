"""A stable counting sort of very many small keys, some at a time: nothing but the result is as long as they are."""

from collections.abc import Callable, Iterator

import numpy as np

# Keys that are looked at together.
_BLOCK = 1 << 16
#: (keys rising, their places int64, where these belong when all keys are grouped int64), of consecutive keys.
Places = tuple[np.ndarray, np.ndarray, np.ndarray]


def count_keys(key: Callable[[slice], np.ndarray], length: int, num_keys: int) -> np.ndarray:
    """int64 (num_keys,): the count of each key.

    key(slice) -> these keys, int; two bytes sort in a tenth of the time of eight. length: number of all of them.
    """
    counts = np.zeros(num_keys, np.int64)
    for first in range(0, length, _BLOCK):
        counts += np.bincount(key(np.s_[first : min(first + _BLOCK, length)]), minlength=num_keys)
    return counts


def grouped(key: Callable[[slice], np.ndarray], length: int, counts: np.ndarray) -> Iterator[Places]:
    """The sorted places of all keys, some at a time, stable. counts: see `count_keys`."""
    ends = np.cumsum(counts) - counts
    for first in range(0, length, _BLOCK):
        keys = key(np.s_[first : min(first + _BLOCK, length)])
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        firsts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
        number = np.diff(np.append(firsts, len(keys)))
        yield keys, first + order, np.repeat(ends[keys[firsts]] - firsts, number) + np.arange(len(order))
        ends[keys[firsts]] += number
