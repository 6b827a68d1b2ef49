"""Rows of features in another order, whatever fits in memory: read once and written once, window by window."""

import contextlib

import numpy as np

from hpcgnn.graphfile.schema import Rows
from partition_tools.workspace.scratch import Scratch


class Scattered:
    """Array-like whose row place[i] is row i of `source`, made to be sliced once from front to back.

    One pass over the source writes its rows into a file for each window of rows; a window is then read and put in
    order.
    """

    def __init__(self, source: Rows, place: np.ndarray, window: int, slab: int, scratch: Scratch) -> None:
        """window: rows that fit in memory; slab: rows that are read at a time."""
        self.source, self.place, self.slab, self.scratch = source, place, slab, scratch
        window = self.window_rows = scratch.once("rows.window", window)
        self.shape, self.dtype = tuple(source.shape), np.dtype(source.dtype)
        self._windows = -(-self.shape[0] // window)
        self._held, self._window = -1, np.empty((0, *self.shape[1:]), self.dtype)

    def _name(self, index: int) -> str:
        return f"rows.{index}"

    def _scatter(self) -> None:
        width = int(np.prod(self.shape[1:], dtype=np.int64))
        with contextlib.ExitStack() as files:
            names = [self._name(index) for index in range(self._windows)]
            rows = [files.enter_context(self.scratch.appending(f"{name}.data", self.dtype)) for name in names]
            places = [files.enter_context(self.scratch.appending(f"{name}.place", np.int64)) for name in names]
            for start in range(0, self.shape[0], self.slab):
                stop = min(start + self.slab, self.shape[0])
                data, target = self.source[start:stop].reshape(stop - start, width), self.place[start:stop]
                home = target // self.window_rows
                for index in np.unique(home):
                    there = home == index
                    rows[index](data[there].reshape(-1))
                    places[index](target[there])
        self.scratch.save("rows.done", np.array(True))

    def _load(self, index: int) -> None:
        if not self.scratch.done("rows.done"):
            self._scatter()
        place, data = (self.scratch.load(f"{self._name(index)}.{what}") for what in ("place", "data"))
        self._window = np.empty((len(place), *self.shape[1:]), self.dtype)
        first = index * self.window_rows
        rows = data.reshape(len(place), *self.shape[1:])
        for start in range(0, len(place), self.slab):
            self._window[np.asarray(place[start : start + self.slab]) - first] = rows[start : start + self.slab]
        self._held = index

    def __getitem__(self, rows: slice) -> np.ndarray:
        start, stop, _ = rows.indices(self.shape[0])
        parts = [self._window[:0]]
        while start < stop:
            index = start // self.window_rows
            end = min(stop, (index + 1) * self.window_rows)
            if index != self._held:
                self._load(index)
            first = index * self.window_rows
            parts.append(self._window[start - first : end - first])
            start = end
        return np.concatenate(parts)
