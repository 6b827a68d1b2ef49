"""What the readers of meshes share: edges once each, and fields that a source gives time by time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike

from hpcgnn.errors import FormatError, GraphError
from hpcgnn.graphfile.field_series import FieldSeries, fault_of_columns, fault_of_times
from hpcgnn.graphfile.schema import SPLITS, RowReader
from partition_tools.generators.drawing import EdgeColumn
from partition_tools.graph.edges import index_dtype
from partition_tools.graph.fields import first_not_finite
from partition_tools.out_of_core.records import Records
from partition_tools.out_of_core.sorting import Runs
from partition_tools.workspace.scratch import Scratch


@dataclass(frozen=True)
class MeshOptions:
    """A format of meshes has no options."""


class TimeByTime:
    """A field (T, n, F) of a source that gives all rows of a time at once; the last time that was asked for is kept.

    read(time) -> (n, F). where(time, row): 'FILE: field NAME … at point …', for a number that is NaN or infinite.
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        dtype: DTypeLike,
        read: Callable[[int], np.ndarray],
        where: Callable[[int, int], str],
    ) -> None:
        self.shape, self.dtype, self._read, self._where = shape, np.dtype(dtype), read, where
        self._time, self._values = -1, np.empty(0)

    def __getitem__(self, place: tuple[slice, slice]) -> np.ndarray:
        times, rows = place
        return np.stack([self._at(time)[rows] for time in range(*times.indices(self.shape[0]))])

    def _at(self, time: int) -> np.ndarray:
        if time != self._time:
            self._time, self._values = -1, np.empty(0)  # before its successor is made
            values = self._read(time)
            if wrong := first_not_finite(values[None]):
                raise GraphError(
                    f"{self._where(time, wrong[1])} is NaN or infinite, expected numbers; mend the data, or take the "
                    "files of this time away"
                )
            self._time, self._values = time, values
        return self._values


def series_of_source(
    path: Path, fields: dict[str, TimeByTime], times: Sequence[float], numbers: Sequence[int] = ()
) -> FieldSeries | None:
    """The fields of a source, all for training; None without fields. numbers: the trajectory of each time, or of all
    one. Raises FormatError.
    """
    time, number = np.array(times, np.float64), np.array(numbers or [0] * len(times), np.int32)
    series = FieldSeries(fields, time, number, np.full(len(times), SPLITS["train"], np.uint8))
    if fields and (fault := fault_of_columns(series.columns) or fault_of_times(time, number)):
        raise FormatError(f"{path}: {fault}; write the fields again")
    return series if fields else None


def mesh_edges(
    nodes: int, pairs: Callable[[int, int], np.ndarray], count: int, scratch: Scratch
) -> tuple[RowReader, RowReader]:
    """(sources, destinations) of distinct edges without self loops, each in both directions.

    Args:
        pairs: (start, stop) -> int (m, 2), the ends of some of `count` pairs in any order, doubles included; called by
            several threads.
    """
    runs = Runs(scratch, "mesh.runs", count)

    def make(index: int) -> Records:
        ends = pairs(index * runs.size, min((index + 1) * runs.size, count)).astype(np.int64)
        low, high = ends.min(axis=1), ends.max(axis=1)
        return Records((low * nodes + high)[low < high])

    with scratch.reporter.bar(count, f"sorting {count:,} edges of elements", "edges") as advance:
        runs.form(make, -(-count // runs.size), advance)
    with scratch.appending("mesh.edges", np.int64) as append:
        for distinct in runs.merged(lambda records: np.unique(records.key)):
            append(distinct)
    runs.remove()
    keys, dtype = scratch.load("mesh.edges"), index_dtype(nodes)

    def end(high: bool) -> Callable[[int, int, bool], np.ndarray]:
        return lambda start, stop, reverse: np.divmod(keys[start:stop], nodes)[high ^ reverse].astype(dtype)

    src, dst = (EdgeColumn(len(keys), dtype, True, end(high)) for high in (False, True))
    return src, dst
