"""Fields of the nodes at many times: the snapshots of a simulation on one graph.

A field is `snapshots/NAME` (T, n, F), with its nodes in the order of the file. A chunk has rows of one time, so that a
rank reads its own rows of a time and nothing else. All fields of a file have the same times.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from hpcgnn.graphfile.hdf5 import SLAB_ROWS, Progress, create_dataset

#: The datasets of all fields: the time of each snapshot, the number of its trajectory, and its split.
TIME, NUMBER, SPLIT = "trajectories/time", "trajectories/number", "trajectories/split"
#: What nodes may have for fields: their place, their weight in the loss, and whether their values are given.
POSITION, VOLUME, GIVEN = "nodes/position", "nodes/volume", "nodes/given"


class FieldReader(Protocol):
    """(T, n, F): field[times, rows] returns the rows of some times, (t, m, F)."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype: ...

    def __getitem__(self, place: tuple[slice, slice], /) -> np.ndarray: ...


@dataclass(frozen=True)
class FieldSeries:
    """All fields of a graph.

    Attributes:
        fields: {name: (T, n, F) float32 or float64}, in the node order of the file.
        time: float64 (T,), ascending within each trajectory.
        number: int32 (T,), the trajectory of each snapshot, never falling.
        split: uint8 (T,), 0 for none or a value of `SPLITS`.
    """

    fields: Mapping[str, FieldReader]
    time: np.ndarray
    number: np.ndarray
    split: np.ndarray

    @property
    def columns(self) -> dict[str, int]:
        """{field: its columns}."""
        return {name: field.shape[2] for name, field in self.fields.items()}


def name_of_field(name: str) -> str:
    """The dataset of a field."""
    return f"snapshots/{name}"


def fault_of_columns(columns: Any) -> str:
    """'', or what is wrong with {field: columns} as an attribute says it."""
    if not isinstance(columns, dict) or not columns:
        return f"snapshots must be a JSON object with a number of columns for each field, got {columns!r}"
    for name, count in columns.items():
        if "/" in name or name in ("", ".", ".."):
            return f"a field must have a name without a slash, got {name!r}"
        if type(count) is not int or not 0 < count < 1 << 31:
            return f"field {name} has {count!r} columns, expected a number of at least 1"
    return ""


def fault_of_times(time: np.ndarray, number: np.ndarray) -> str:
    """'', or the first snapshot whose time or number of a trajectory cannot be. time: float (T,); number: int (T,)."""
    if len(wrong := np.flatnonzero(~np.isfinite(time))):
        return f"the time of snapshot {wrong[0]} is {time[wrong[0]]}, expected a number"
    if len(wrong := np.flatnonzero(np.diff(number) < 0)) or (number[:1] < 0).any():
        at = wrong[0] + 1 if len(wrong) else 0
        return f"snapshot {at} has number {number[at]} of its trajectory, expected numbers from 0 that never fall"
    if len(wrong := np.flatnonzero((np.diff(time) <= 0) & (np.diff(number) == 0))):
        at = wrong[0]
        return (
            f"times must increase within a trajectory, and snapshots {at} and {at + 1} of trajectory {number[at]} "
            f"have {time[at]:g} and {time[at + 1]:g}"
        )
    return ""


def fault_of_splits(split: np.ndarray, most: int) -> str:
    """'', or the first snapshot in no split. split: int (T,). most: the largest number of a split."""
    wrong = np.flatnonzero((split < 0) | (split > most))
    return f"snapshot {wrong[0]} has split {split[wrong[0]]}, expected 0..{most}" if len(wrong) else ""


def write_field(
    file: Any, name: str, field: FieldReader, check: Callable[[], None], progress: Progress, clusters: int
) -> None:
    """Write a field into an open file, some rows of one time after another. clusters: as of `create_dataset`."""
    dataset = create_dataset(file, name_of_field(name), tuple(field.shape), field.dtype, clusters, axis=1)
    times, nodes, _ = field.shape
    rows = max(1, SLAB_ROWS // dataset.chunks[1]) * dataset.chunks[1]  # whole chunks
    for time in range(times):
        for start in range(0, nodes, rows):
            stop = min(start + rows, nodes)
            dataset[time, start:stop] = field[time : time + 1, start:stop][0]
            check()
            progress(stop - start)
