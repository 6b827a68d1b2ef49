"""The snapshots of a graph file: rows of own nodes at one time, read when they are needed.

Nothing as long as the times of a field is ever in memory. A rank reads its own rows alone.
"""

from collections.abc import Sequence

import numpy as np
import torch

from hpcgnn.errors import FormatError, GraphError
from hpcgnn.graphfile.field_series import NUMBER, SPLIT, TIME, fault_of_splits, fault_of_times, name_of_field
from hpcgnn.graphfile.ranges import segments
from hpcgnn.graphfile.schema import SPLITS
from hpcgnn.graphfile.storage import GraphFile


class Snapshots:
    """All fields of an open graph file.

    Attributes:
        columns: {field: its columns F}.
        times: float64 (T,), ascending within a trajectory.
        trajectory: int32 (T,), the number of the trajectory of each snapshot, never falling.
        split: uint8 (T,), 0 for none or a value of `SPLITS`.

    Raises:
        GraphError: the file has no snapshots.
        FormatError: a dataset is missing, has another shape than the file says, or times that cannot be.
    """

    def __init__(self, file: GraphFile) -> None:
        if file.meta.snapshots is None:
            raise GraphError(
                f"{file.path} has no snapshots, expected fields of the nodes at many times; add them with `python -m "
                "partition_tools snapshots`"
            )
        self._file, self.columns = file, file.meta.snapshots
        count = (*file.shape(TIME), 0)[0]
        shapes = {name: (count,) for name in (TIME, NUMBER, SPLIT)}
        fields = {name_of_field(name): (count, file.meta.num_nodes, width) for name, width in self.columns.items()}
        for name, shape in (shapes | fields).items():
            if file.shape(name) != shape:
                raise FormatError(
                    f"{file.path}: {name} has shape {file.shape(name)}, expected {shape}; the file is corrupted or "
                    "incomplete, add the snapshots again"
                )
        self.times = file.read(TIME, dtype=np.float64)
        self.trajectory = file.read(NUMBER, dtype=np.int32)
        self.split = file.read(SPLIT, dtype=np.uint8)
        if fault := fault_of_times(self.times, self.trajectory) or fault_of_splits(self.split, len(SPLITS)):
            raise FormatError(f"{file.path}: {fault}; the file is corrupted, add the snapshots again")

    def read(
        self,
        name: str,
        t: int,
        ranges: Sequence[tuple[int, int]],
        number: np.ndarray | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> torch.Tensor:
        """Rows (n_p, F) of a field at the snapshot `t`, 0 … T - 1.

        Args:
            ranges: (start, stop) of the rows of the file.
            number: int64 (n_p,), the place of each of these rows; None: one after another.
            dtype: float32 or float64.

        Raises:
            FormatError: the rows cannot be read.
            GraphError: a number is NaN or infinite in this type.
        """
        wide = torch.empty(0, dtype=dtype).numpy().dtype
        found = self._file.read(name_of_field(name), ranges, wide, number, time=t)
        if not np.isfinite(found).all():
            finite = np.isfinite(found).all(axis=1)
            starts, stops = np.array(ranges, np.int64).T
            rows = segments(starts, stops - starts)
            row = int(rows[~(finite if number is None else finite[number])].min())
            node = int(self._file.read("nodes/original_id", [(row, row + 1)])[0])
            raise GraphError(
                f"{self._file.path}: field {name} at snapshot {t} (time {self.times[t]:g}) is NaN or infinite at node "
                f"{node} (its original id), expected numbers of {wide}; mend the data, and write them again with "
                "`python -m partition_tools snapshots`"
            )
        return torch.from_numpy(found)
