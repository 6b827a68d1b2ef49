"""What the loss and the evaluator of fields share: the fields' columns, the times, the rank's snapshots and weights."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch

from hpcgnn.config import Config
from hpcgnn.errors import GraphError
from hpcgnn.extras.meshes.forecast import Forecasts
from hpcgnn.extras.meshes.frames import Frame, Frames
from hpcgnn.extras.meshes.options import options_of
from hpcgnn.extras.meshes.scaling import Scaling
from hpcgnn.extras.meshes.snapshots import Snapshots
from hpcgnn.extras.meshes.windows import FieldColumns, Windows
from hpcgnn.graph.own_rows import OwnRows
from hpcgnn.graphfile.field_series import GIVEN, VOLUME
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.tasks.base import EpochWork, Setting

#: What snapshots in memory may take on a rank, if those of two windows do not take more.
HELD_BYTES = 256 << 20
#: The splits that forecasts are judged by.
HELD = ("val", "test")
#: (start of a window, …).
Pass = TypeVar("Pass", bound=tuple[Any, ...])


@dataclass(frozen=True)
class FieldSetting:
    """Of a rank. Made collectively.

    Attributes:
        times: float64 (T,), of the snapshots.
        weight: float64 (n_p,), of each own node in the loss, 0 where its values are given.
        total: the sum of the weights of all nodes.
        replica, replicas: the number of this rank's replica, and how many there are.
    """

    on: Setting
    columns: FieldColumns
    windows: Windows
    forecasts: Forecasts
    times: np.ndarray
    weight: torch.Tensor
    total: float
    replica: int
    replicas: int

    @classmethod
    def of(cls, on: Setting, scaling: Scaling) -> "FieldSetting":
        """Of a rank's share. Without a graph file, where a model is tried on a small graph, fields are made up."""
        options, source, spec = options_of(on.config), on.local.source, on.model.spec
        given, dtype = None, spec.dtype  # type: torch.Tensor | None, Any
        if source is None:
            columns = FieldColumns.made_up(len(scaling.input_mean), len(scaling.target_mean))
            windows = Windows.made_up(options.history, options.lag, options.rollout)
            times = np.arange(len(windows.split))
            wave = torch.arange(on.local.num_owned, dtype=dtype)[:, None].sin()
            weight = torch.ones(on.local.num_owned, dtype=torch.float64)

            def read(time: int) -> Frame:
                return {name: wave.repeat(1, width) for name, width in columns.both.items()}

        else:
            # A file of its own: that of the start is closed where a trained model is used.
            file = GraphFile(source.file.path, source.file.meta)
            snapshots = Snapshots(file)
            columns, times = FieldColumns.of(options, snapshots.columns), snapshots.times
            windows = Windows(snapshots.trajectory, snapshots.split, options.history, options.lag)
            weight, given = _weights(file, source)

            def read(time: int) -> Frame:
                place = source.ranges, source.order.number, dtype
                return {name: snapshots.read(name, time, *place) for name in columns.both}

        most = windows.most(options.rollout, HELD_BYTES // bytes_of_frame(on.local.num_owned, columns, dtype))
        frames = Frames(read, most)
        replicas = 1 if source is None else on.config.data.replicas
        total = float(on.comm.total(weight.sum().reshape(1), "plan")) / replicas
        replica = on.comm.rank * replicas // on.comm.size
        forecasts = Forecasts(columns, windows, frames, scaling, given, dtype)
        return cls(on, columns, windows, forecasts, times, weight, total, replica, replicas)

    def dealt(self, starts: Sequence[int]) -> list[tuple[int, bool]]:
        """[(the start of this replica's window, whether it counts)] of each pass through windows. In the last pass some
        replicas repeat a window, for all take part.
        """
        mine = [(start, True) for start in starts[self.replica :: self.replicas]]
        return mine + [(starts[-1], False)] * (-(-len(starts) // self.replicas) - len(mine))

    def ahead(self, passes: Sequence[Pass], steps: int = 1) -> Iterator[Pass]:
        """The passes, which begin with a start, while the snapshots of the next one are read."""
        for number, each in enumerate(passes):
            self.forecasts.ask([start for start, *_ in passes[number : number + 2]], steps)
            yield each

    def mean_squares(self, difference: torch.Tensor) -> torch.Tensor:
        """float64 (C,): this rank's share of the weighted mean square of each column, over the nodes of its replica."""
        return self.weight @ difference.double().square() / self.total


def bytes_of_frame(nodes: int, columns: FieldColumns, dtype: torch.dtype) -> int:
    """Bytes of the snapshots of a time on so many nodes, at least 1."""
    return max(1, nodes * sum(columns.both.values()) * dtype.itemsize)


def epoch_work(config: Config, columns: FieldColumns, dtype: torch.dtype, snapshots: Snapshots) -> EpochWork:
    """The passes of an epoch through the windows, and the bytes of the snapshots that it leaves in memory."""
    options = options_of(config)
    windows = Windows(snapshots.trajectory, snapshots.split, options.history, options.lag)
    judged = {split: starts for split in HELD if len(starts := windows.starts(split))}
    begins = windows.starts("train", options.rollout)
    used = [(begins, options.rollout), (windows.starts("train"), 1)]
    used += [(starts, 1) for starts in judged.values()] if config.run.eval_every else []
    times = {time for starts, steps in used for start in starts for time in windows.times(start, steps)}

    def held(nodes: int) -> int:
        size = bytes_of_frame(nodes, columns, dtype)
        return size * min(len(times), windows.most(options.rollout, HELD_BYTES // size))

    passes = {split: len(starts) for split, starts in judged.items()}
    return EpochWork(len(begins), -(-len(begins) // options.snapshots_per_step), passes, held)


def _weights(file: GraphFile, source: OwnRows) -> tuple[torch.Tensor, torch.Tensor | None]:
    """(float64 (n_p,): weights of own nodes in the loss, 0 where values are given; bool (n_p, 1): those, or None)."""
    place, count = (source.ranges, np.float64, source.order.number), sum(stop - start for start, stop in source.ranges)
    weight = torch.from_numpy(file.read(VOLUME, *place)) if VOLUME in file else torch.ones(count, dtype=torch.float64)
    if not bool((weight >= 0).all() & weight.isfinite().all()):
        raise GraphError(
            f"{file.path}: {VOLUME} has weights below 0, NaN or infinite ones; mend them and add them again"
        )
    if GIVEN not in file:
        return weight, None
    given = torch.from_numpy(file.read(GIVEN, *place)) != 0
    return weight.masked_fill_(given, 0), given[:, None]
