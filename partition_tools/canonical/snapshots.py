"""Fields of the nodes at many times on their way into the file: their shapes, numbers, times, trajectories and splits.

Values are checked and hashed where they are read, block by block in the order of the source: no further pass is needed.
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from hpcgnn.errors import ConfigError, GraphError
from hpcgnn.graphfile.field_series import GIVEN, POSITION, VOLUME, FieldSeries, fault_of_splits, fault_of_times
from hpcgnn.graphfile.own_ids import ids_of, kind_of_ids
from hpcgnn.graphfile.schema import SPLITS
from hpcgnn.graphfile.storage import GraphFile
from partition_tools.graph.counts import whole
from partition_tools.graph.fields import PlacedField
from partition_tools.readers.tables.field_files import BlockArray, open_array

SHARES = "0.8/0.1/0.1"
_THREE = re.compile(r"[0-9.]+(/[0-9.]+){2}")
#: What nodes have beside fields: {name: (columns of its shape, which numbers are wrong, what is expected)}.
_WRONG: dict[str, tuple[str, Callable[[np.ndarray], np.ndarray], str]] = {
    POSITION: (" D", lambda values: ~np.isfinite(values), "numbers"),
    VOLUME: ("", lambda values: ~(np.isfinite(values) & (values >= 0)), "numbers of at least 0"),
    GIVEN: ("", lambda values: (values != 0) & (values != 1), "0 or 1"),
}


class CheckedField:
    """An array of a source as a field (T, n, F), or what nodes have, as one of one time.

    Args:
        array: (T, n) or (T, n, F), and of `_WRONG` (n,) or (n, D).
        name: of the field, or a dataset of `_WRONG`.
        file: the open graph file.

    Raises:
        GraphError: another shape; and from `seen` a number that may not be.
    """

    def __init__(self, array: BlockArray, name: str, file: GraphFile) -> None:
        self._array, self.name, self._file = array, name, file
        self._of_nodes, nodes, shape = name in _WRONG, file.meta.num_nodes, array.shape
        columns, self._wrong, self._expected = _WRONG.get(name, ("", lambda values: ~np.isfinite(values), "numbers"))
        sound = len(shape) == 1 + bool(columns) if self._of_nodes else len(shape) in (2, 3)
        if not sound or shape[not self._of_nodes] != nodes or 0 in shape:
            expected = f"({nodes},{columns})" if self._of_nodes else f"(T, {nodes}) or (T, {nodes}, F)"
            raise GraphError(
                f"{array.said} has shape {shape}, expected {expected} for {name}: one row for each node of "
                f"{file.path}, in the order of the import"
            )
        times, _, *rest = (1, *shape) if self._of_nodes else shape
        self.shape, self.dtype = (times, nodes, *(rest or (1,))), array.dtype
        self.chunks = None if self._of_nodes else array.chunks
        self.times = np.zeros(times)
        self._digests = [hashlib.sha256() for _ in range(times)]

    def __getitem__(self, place: tuple[slice, slice]) -> np.ndarray:
        values = self._array[place[1:] if self._of_nodes else place]
        return values.reshape(1 if self._of_nodes else len(values), -1, self.shape[2])

    def seen(self, time: int, row: int, values: np.ndarray) -> None:
        """Check and hash a block of the source."""
        wrong = self._wrong(values)
        if wrong.any():
            at, node = divmod(int(np.argmax(wrong.any(axis=2))), wrong.shape[1])
            at, node = at + time, node + row
            when = "" if self._of_nodes else f" at snapshot {at} (time {self.times[at]:g})"
            own = f" (id {ids_of(self._file, np.array([node]))[0]})" if kind_of_ids(self._file) else ""
            raise GraphError(
                f"{self.name}{when} is {values[at - time, node - row]} at node {node}{own}, row {node} of "
                f"{self._array.said}; expected {self._expected}, mend the data first"
            )
        for each, digest in zip(values, self._digests[time:], strict=False):
            digest.update(np.ascontiguousarray(each).data)

    def digest(self) -> bytes:
        """The SHA-256 of name, shape and numbers, when all of them were seen."""
        parts = [f"{self.name} {self.shape} {self.dtype}".encode(), *(each.digest() for each in self._digests)]
        return hashlib.sha256(b"".join(parts)).digest()

    def placed(self, place: np.ndarray, buffer_bytes: int) -> PlacedField:
        """Its rows in the order of the file. Arguments: see `PlacedField`."""
        return PlacedField(self, place, buffer_bytes, self.seen)


class NodeRows:
    """What nodes have, as rows (n,) or (n, D) of a `PlacedField` of one time."""

    def __init__(self, field: PlacedField, name: str) -> None:
        self._field, nodes = field, field.shape[1]
        self.shape = (nodes, field.shape[2]) if name == POSITION else (nodes,)
        self.dtype = np.dtype(np.uint8) if name == GIVEN else field.dtype

    def __getitem__(self, rows: slice) -> np.ndarray:
        return self._field[0:1, rows][0].reshape(-1, *self.shape[1:]).astype(self.dtype)


def series_of(count: int, given: Mapping[str, Any], old: FieldSeries | None) -> FieldSeries:
    """The `FieldSeries`, without fields, of `count` snapshots.

    given: times, trajectories and split, as of the command or arrays; what is left out is as in `old`, if it has so
    many snapshots, else 0, 1, 2, …, one trajectory, and `SHARES`. Raises ConfigError, FormatError or GraphError.
    """
    old = old if old is not None and len(old.time) == count else None
    number = old.number if old and "trajectories" not in given else _numbers(given.get("trajectories", count), count)
    if fault := fault_of_times(np.arange(count), number):
        raise GraphError(f"{fault}; mend --trajectories")
    time = old.time if old and "times" not in given else _times(given.get("times", "0:1"), number)
    if fault := fault_of_times(time, number):
        raise GraphError(f"{fault}; mend --times, or say --trajectories")
    split = old.split if old and "split" not in given else _split(given.get("split", SHARES), number)
    return FieldSeries({}, time, number, split)


def _vector(source: Any, count: int, option: str) -> np.ndarray:
    """float (count,) of a file or an array."""
    with open_array(source, option) as array:
        if array.shape != (count,):
            raise GraphError(f"--{option}: {array.said} has shape {array.shape}, expected ({count},), one per snapshot")
        return array[:]


def _wholes(source: Any, count: int, option: str) -> np.ndarray:
    found = whole(_vector(source, count, option))
    if found is None:
        raise GraphError(f"--{option} must be whole numbers, one for each of {count} snapshots")
    return found


def _numbers(source: Any, count: int) -> np.ndarray:
    """int32 (count,): the trajectory of each snapshot, of equal lengths or as given."""
    if isinstance(source, int) or (isinstance(source, str) and source.isdecimal()):
        length = int(source)
        if length < 1 or count % length:
            raise ConfigError(
                f"--trajectories {length}: expected a divisor of the {count} snapshots, or a file with the number of "
                "the trajectory of each"
            )
        return np.repeat(np.arange(count // length, dtype=np.int32), length)
    return _wholes(source, count, "trajectories").astype(np.int32)


def _times(source: Any, number: np.ndarray) -> np.ndarray:
    """float64 (T,), by START:STEP in each trajectory, or as given."""
    words = source.split(":") if isinstance(source, str) else []
    try:
        start, step = map(float, words)
    except ValueError:
        return _vector(source, len(number), "times").astype(np.float64)
    return start + step * (np.arange(len(number)) - np.searchsorted(number, number))


def _split(source: Any, number: np.ndarray) -> np.ndarray:
    """uint8 (T,), by shares of trajectories or of times, or as given."""
    if not isinstance(source, str) or not _THREE.fullmatch(source):
        split = _wholes(source, len(number), "split")
        if fault := fault_of_splits(split, len(SPLITS)):
            raise GraphError(f"{fault}; mend --split")
        return split.astype(np.uint8)
    shares = np.array(source.split("/"), np.float64)
    if shares.sum() > 1 + 1e-9:
        raise ConfigError(f"--split {source}: expected shares of train, val and test, together at most 1")
    kinds, unit = np.unique(number, return_inverse=True)
    count, what = len(kinds), "trajectories"
    if count == 1:
        unit, count, what = np.arange(len(number)), len(number), "snapshots"
    wanted, stop, split = shares > 0, 0, np.zeros(len(number), np.uint8)
    if count < wanted.sum():
        raise ConfigError(
            f"--split {source}: {count} {what} are too few for {wanted.sum()} parts; say --split 1/0/0, or give a file "
            "with a number for each snapshot"
        )
    for value, place, end in zip(SPLITS.values(), range(3), np.rint(shares.cumsum() * count), strict=True):
        start, left = stop, int(wanted[place + 1 :].sum())  # at least one for each part
        stop = min(max(int(end), start + int(wanted[place])), count - left)
        split[(unit >= start) & (unit < stop)] = value
    return split
