"""Fields of the nodes at many times, read from a graph file or put in another order of the nodes, time by time."""

from collections.abc import Callable
from typing import Any

import numpy as np

from hpcgnn.graphfile.field_series import NUMBER, SPLIT, TIME, FieldSeries, name_of_field
from hpcgnn.graphfile.storage import SLAB_ROWS, GraphFile

#: seen(first time, first row, values (times, rows, F)): called with all values of a source, in its own order.
Seen = Callable[[int, int, np.ndarray], object]


class FieldOnDisk:
    """A field of an open `GraphFile`, read when it is sliced: field[times, rows]."""

    def __init__(self, file: GraphFile, name: str) -> None:
        self.file, self.name = file, name_of_field(name)
        self.shape, self.dtype = file.shape(self.name), file.dtype(self.name).newbyteorder("=")

    def __getitem__(self, place: tuple[slice, slice]) -> np.ndarray:
        times, (start, stop, _) = range(*place[0].indices(self.shape[0])), place[1].indices(self.shape[1])
        return np.stack([self.file.read(self.name, [(start, stop)], time=time) for time in times])


class PlacedField:
    """A field (T, n, F) whose row place[i] is row i of `source`, to be read from the first time to the last.

    A pass over the source in its own order fills a window. It has as many times as a chunk of the source, or rows of
    one time where n rows take more than `buffer_bytes`. Memory: the window, and a chunk of the source or a fourth more.

    Args:
        source: (T, n, F), sliced by times and rows.
        place: int64 (n,), a permutation.
        seen: gets each value of the source once.
    """

    def __init__(
        self, source: Any, place: np.ndarray, buffer_bytes: int, seen: Seen = lambda time, row, values: None
    ) -> None:
        self.source, self.place, self._seen = source, place, seen
        self.shape, self.dtype = tuple(source.shape), np.dtype(source.dtype).newbyteorder("=")
        _, nodes, columns = self.shape
        chunk_times, chunk_rows, *_ = getattr(source, "chunks", None) or (1, 1)
        self._rows = max(1, min(nodes, buffer_bytes // (columns * self.dtype.itemsize)))
        fit = buffer_bytes // (nodes * columns * self.dtype.itemsize)
        self._times = max(1, fit if fit < chunk_times else chunk_times)
        fourth = buffer_bytes // (4 * self._times * columns * self.dtype.itemsize)
        self._block = max(1, min(SLAB_ROWS, fourth) // chunk_rows) * chunk_rows
        self._time = self._row = 0
        self._window = self._empty(0, 0)

    def _empty(self, times: int, rows: int) -> np.ndarray:
        return np.empty((times, rows, self.shape[2]), self.dtype)

    def __getitem__(self, place: tuple[slice, slice]) -> np.ndarray:
        (first, last, _), (start, stop, _) = (each.indices(size) for each, size in zip(place, self.shape, strict=False))
        held_times, held_rows, _ = self._window.shape
        if not (
            self._time <= first <= last <= self._time + held_times
            and self._row <= start <= stop <= self._row + held_rows
        ):
            self._fill(first, start, max(self._rows, stop - start))
        found = self._window[first - self._time : last - self._time, start - self._row : stop - self._row]
        if (last, stop) == self.shape[:2]:  # the next field gets its memory
            self._window = self._empty(0, 0)
        return found

    def _fill(self, time: int, row: int, rows: int) -> None:
        self._window = self._empty(0, 0)  # before its successor is made
        times, rows = min(self._times, self.shape[0] - time), min(rows, self.shape[1] - row)
        self._window, self._time, self._row = self._empty(times, rows), time, row
        for start in range(0, self.shape[1], self._block):
            values = np.asarray(self.source[time : time + times, start : start + self._block])
            if row == 0:
                self._seen(time, start, values)
            place = self.place[start : start + self._block] - row
            inside = slice(None) if rows == self.shape[1] else (place >= 0) & (place < rows)
            self._window[:, place[inside]] = values[:, inside]


def load_series(file: GraphFile) -> FieldSeries | None:
    """The fields of an open `GraphFile`, left in it, or None."""
    if file.meta.snapshots is None:
        return None
    fields = {name: FieldOnDisk(file, name) for name in file.meta.snapshots}
    return FieldSeries(fields, file.read(TIME), file.read(NUMBER), file.read(SPLIT))


def first_not_finite(values: np.ndarray) -> tuple[int, int] | None:
    """(time, row) of the first NaN or infinity of values (times, rows, F), or None."""
    finite = np.isfinite(values)
    if finite.all():
        return None
    return divmod(int(np.argmin(finite.all(axis=2))), finite.shape[1])
