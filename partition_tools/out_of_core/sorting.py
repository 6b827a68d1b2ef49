"""An external merge sort: chunks that fit are sorted as runs, and the runs are merged range by range.

The first runs stay in memory, as far as a quarter of it holds them, and the others go to files.

A merge here is no queue of the smallest keys. Samples of the runs give keys that cut all of them into ranges of about
the same number of records. A range is a slice of each run; it is read, sorted and handled in memory, all ranges apart
from each other. So several cores work at a time. No two ranges share a key, so each sees all records of a key (for
dropping duplicates, merging). (Knuth, "The Art of Computer Programming", volume 3, section 5.4; a sample sort cuts the
same way.)
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from hpcgnn import cores
from partition_tools.out_of_core.records import Records, joined
from partition_tools.workspace.scratch import Scratch

#: Records of a run and of a range. Many runs cost reads of few records each; what a range takes stays near the core.
MOST_RUN, MOST_RANGE = 1 << 25, 1 << 20
#: Fewer records are not worth a thread.
LEAST = 1 << 16
#: Bytes of a record with all that it may carry, and those that are held beside each record while a chunk or a range is
#: worked on, sorted order and results included.
RECORD_BYTES, WORKING_BYTES = 24, 56
COLUMNS = {"key": np.int64, "kind": np.int32, "weight": np.float32, "row": np.int64}
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
Advance = Callable[[int], object]


def in_order(function: Callable[[_Item], _Result], items: Iterable[_Item]) -> Iterator[_Result]:
    """function(item) for each item, in their order, computed ahead by one thread per core.

    At most one result more than there are cores is held or under way. An error of a call is raised in its turn.
    """
    waiting: deque = deque()
    with ThreadPoolExecutor(len(cores.usable()), initializer=cores.use_all) as pool:
        try:
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) > len(cores.usable()):
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for each in waiting:
                each.cancel()


def chunk_records(memory: int, most: int, total: int) -> int:
    """Records that each thread works on at a time: all of them keep within three quarters of `memory` bytes, and each
    has some of the `total` twice.
    """
    threads = len(cores.usable())
    return max(1, min(most, memory * 3 // 4 // ((threads + 2) * WORKING_BYTES), max(LEAST, -(-total // (2 * threads)))))


class Runs:
    """Sorted runs in a scratch directory. name: of their folder. total: about how many records there will be.
    by_weight: whether weights take part in the order.

    size: the records that a run may have. lengths: those that each has. in_memory: the first runs by
    their numbers, as far as they fit a quarter of the memory; the others are in files.
    """

    def __init__(self, scratch: Scratch, name: str, total: int, by_weight: bool = False) -> None:
        self.scratch, self.by_weight, self.name = scratch, by_weight, name
        self.size = chunk_records(scratch.memory, MOST_RUN, total)
        self.lengths: list[int] = []
        self.in_memory: dict[int, Records] = {}

    def _column(self, run: int, column: str) -> str:
        return f"{self.name}/{run:05d}.{column}"

    def form(self, make: Callable[[int], Records], count: int, advance: Advance = lambda records: None) -> None:
        """Add `count` runs from make(0), make(1), … in any order.

        make: called by several threads. advance: called with the number of the records of each run.
        """
        first = len(self.lengths)

        def form_one(index: int) -> int:
            records = make(index).sort(self.by_weight)
            if (first + index + 1) * self.size * RECORD_BYTES <= self.scratch.memory // 4:
                self.in_memory[first + index] = records
                return len(records)
            for column in COLUMNS:
                if getattr(records, column) is not None:
                    self.scratch.save(self._column(first + index, column), getattr(records, column))
            return len(records)

        for length in in_order(form_one, range(count)):
            advance(length)
            self.lengths.append(length)

    def __len__(self) -> int:
        return sum(self.lengths)

    def _slice(self, run: int, columns: list[str], start: int, stop: int) -> Records:
        """Some records of a run; no file stays open."""
        if run in self.in_memory:
            return self.in_memory[run].take(slice(start, stop))
        place = start, stop, self.lengths[run]
        return Records(**{name: self.scratch.read(self._column(run, name), COLUMNS[name], *place) for name in columns})

    def merged(self, work: Callable[[Records], _Result], advance: Advance = lambda records: None) -> Iterator[_Result]:
        """Yield work(records) of the sorted records of each range of keys, the ranges in ascending order.

        work: called by several threads, with records whose keys no other range has.
        """
        if not self.lengths:
            return
        wanted = chunk_records(self.scratch.memory, MOST_RANGE, len(self))
        step = max(1, wanted // (8 * len(self.lengths)))

        # A mapped file stays open as long as it is looked at: one at a time.
        def keys() -> Iterator[np.ndarray]:
            for run in range(len(self.lengths)):
                yield self.in_memory[run].key if run in self.in_memory else self.scratch.load(self._column(run, "key"))

        samples, least = [], []
        for key in keys():
            samples.append(np.array(key[step - 1 :: step]))
            least += [int(key[0])] if len(key) else []
        bounds = _cuts(samples, max(1, wanted // step), min(least, default=0))
        places = [np.concatenate([[0], np.searchsorted(key, bounds), [len(key)]]) for key in keys()]
        columns = [name for name in COLUMNS if self.scratch.has(self._column(len(self.lengths) - 1, name))]

        def handle(index: int) -> tuple[int, _Result]:
            spans = [(run, int(place[index]), int(place[index + 1])) for run, place in enumerate(places)]
            found = [self._slice(run, columns, *span) for run, *span in spans if span[0] < span[1]]
            # An empty one tells which attributes there are.
            records = joined(found or [self._slice(0, columns, 0, 0)]).sort(self.by_weight, len(found))
            return len(records), work(records)

        for length, result in in_order(handle, range(len(bounds) + 1)):
            advance(length)
            yield result

    def remove(self) -> None:
        """Give the space of the runs back."""
        self.in_memory.clear()
        self.scratch.forget(self.name)


def _cuts(samples: list[np.ndarray], per_range: int, least: int) -> np.ndarray:
    """Ascending distinct keys int64 that cut records into ranges of about equal numbers of samples, none empty.

    samples: sorted vectors of every k-th key. least: the smallest key of all. A range begins with its key.
    """
    every = np.sort(np.concatenate([np.zeros(0, np.int64), *samples]))
    cuts = np.unique(every[per_range - 1 :: per_range])
    return cuts[cuts > least]
