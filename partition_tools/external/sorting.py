"""An external merge sort: chunks that fit are sorted and written as runs, and the runs are merged range by range.

A merge here is no queue of the smallest keys. Samples of the runs give keys that cut all of them into ranges of about
the same number of records. A range is a slice of each run; it is read, sorted and handled in memory, all ranges apart
from each other. So several cores work at a time, and no two ranges share a key, so that whatever concerns the records
of one key (dropping duplicates, merging) is seen whole. (Knuth, "The Art of Computer Programming", volume 3, section
5.4; the cuts are those of a sample sort.)
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from partition_tools.external.records import Records, joined
from partition_tools.external.scratch import Scratch

#: Records of a run and of a range: more would not make reading or sorting any faster.
MOST_RUN, MOST_RANGE = 1 << 25, 1 << 23
#: Bytes that are held beside each record while a chunk or a range is worked on, sorted order and results included.
WORKING_BYTES = 56
COLUMNS = ("kind", "weight", "key")  # the key last: a run is finished when it is there
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
Advance = Callable[[int], object]


def cores() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0))


def in_order(function: Callable[[_Item], _Result], items: Iterable[_Item]) -> Iterator[_Result]:
    """function(item) for each item, in their order, worked out ahead by as many threads as there are cores.

    At most one result more than there are cores is held or under way. What a call raises is raised in its turn.
    """
    waiting: deque = deque()
    with ThreadPoolExecutor(cores()) as pool:
        try:
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) > cores():
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for each in waiting:
                each.cancel()


def chunk_records(memory: int, most: int) -> int:
    """Records that may be worked on at a time by each thread, so that all of them keep within `memory` bytes."""
    return max(1, min(most, memory // ((cores() + 2) * WORKING_BYTES)))


class Runs:
    """Sorted runs in a scratch directory. name: of their folder. by_weight: whether weights take part in the order.

    size: the records that a run may have.
    """

    def __init__(self, scratch: Scratch, name: str, by_weight: bool = False) -> None:
        self.scratch, self.by_weight = scratch, by_weight
        self.size = chunk_records(scratch.memory, MOST_RUN)
        self.name = f"{name}.{self.size}"  # runs of another size, of a call with other memory, are no part of these
        self.count = 0
        self._beside: list[Records] = []

    def _column(self, run: int, column: str) -> str:
        return f"{self.name}/{run:05d}.{column}"

    def form(
        self,
        make: Callable[[int], Records],
        count: int,
        advance: Advance = lambda records: None,
        part: tuple[int, int] = (0, 1),
    ) -> None:
        """Add `count` runs, of what make(0), make(1), … give in any order; those that are there already stay.

        make: called by several threads. advance: called with the number of the records of each run. part: (i, N), to
        make only each N-th run, the i-th first.
        """
        first = self.count

        def form_one(index: int) -> int:
            if not self.scratch.done(self._column(first + index, "key")):
                records = make(index).sort(self.by_weight)
                for column in COLUMNS:
                    if getattr(records, column) is not None:
                        self.scratch.save(self._column(first + index, column), getattr(records, column))
            return len(self.scratch.load(self._column(first + index, "key")))

        for length in in_order(form_one, range(part[0], count, part[1])):
            advance(length)
        self.count += count

    def include(self, records: Records) -> None:
        """Have sorted records that stand elsewhere merged with the runs."""
        self._beside.append(records)

    def _all(self) -> list[Records]:
        return [*self._beside, *(self._run(run) for run in range(self.count))]

    def _run(self, run: int) -> Records:
        there = [name for name in ("key", "kind", "weight") if self.scratch.done(self._column(run, name))]
        return Records(**{name: self.scratch.load(self._column(run, name)) for name in there})

    def __len__(self) -> int:
        return sum(map(len, self._all()))

    def merged(self, work: Callable[[Records], _Result], advance: Advance = lambda records: None) -> Iterator[_Result]:
        """Yield work(records) of the sorted records of each range of keys, the ranges in ascending order.

        work: called by several threads, with records of which no other range has an equal key.
        """
        runs = [run for run in self._all() if len(run)] or self._all()[
            :1
        ]  # an empty one says which attributes there are
        wanted = chunk_records(self.scratch.memory, MOST_RANGE)
        bounds = _cuts([run.key for run in runs], wanted)
        places = [np.searchsorted(run.key, bounds) for run in runs]

        def handle(index: int) -> tuple[int, _Result]:
            starts = [0 if index == 0 else place[index - 1] for place in places]
            stops = [len(run) if index == len(bounds) else place[index] for run, place in zip(runs, places)]
            slices = [run.take(slice(int(a), int(b))) for run, a, b in zip(runs, starts, stops)]
            records = joined(slices).sort(self.by_weight)
            return len(records), work(records)

        if runs:
            for length, result in in_order(handle, range(len(bounds) + 1)):
                advance(length)
                yield result

    def remove(self) -> None:
        """Give the space of the runs back."""
        self.scratch.forget(self.name)


def _cuts(keys: list[np.ndarray], wanted: int) -> np.ndarray:
    """Ascending distinct keys int64 that cut sorted vectors of keys into ranges of about `wanted` records, none empty.

    A range begins with its key.
    """
    step = max(1, wanted // (8 * max(1, len(keys))))
    samples = [key[step - 1 :: step] for key in keys]
    every = np.sort(np.concatenate([np.zeros(0, np.int64), *samples]))
    per_range = max(1, wanted // step)
    cuts = np.unique(every[per_range - 1 :: per_range])
    return cuts[cuts > min((int(key[0]) for key in keys if len(key)), default=0)]
