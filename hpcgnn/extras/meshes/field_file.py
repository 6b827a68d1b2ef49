"""Files of fields at many times, as `rollout` and `predict` write them: arrays in the original order of nodes."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hpcgnn.app.loaded_model import LoadedModel
from hpcgnn.extras.meshes.evaluator import FieldForecast
from hpcgnn.extras.meshes.pictures import PLACE
from hpcgnn.graphfile.field_series import name_of_field
from hpcgnn.graphfile.hdf5 import create_dataset, replacing, write_attributes, written_file
from hpcgnn.graphfile.original_order import OriginalOrder


class FieldFile:
    """A file with /time and /snapshot (K,), /snapshots/FIELD (K, n, F) and /position. Made collectively by
    `field_file`.
    """

    def __init__(self, trained: LoadedModel, count: int, file: Any, check: Any) -> None:
        """file, check: of the open file on rank 0, None on others."""
        self._local, self._comm = trained.trainer.local, trained.trainer.comm
        self._count, self._file, self._check, self._step = count, file, check, 0
        if file is not None:
            write_attributes(file, **trained.origin())
            create_dataset(file, "time", (count,), np.dtype(np.float64))
            create_dataset(file, PLACE, (count,), np.dtype(np.int64))
        if self._local.position is not None:
            self._write({"position": self._local.position})

    def add(self, forecast: FieldForecast) -> None:
        """Write the next time. Collective."""
        self._write({name_of_field(name): rows for name, rows in forecast.fields.items()}, self._step)
        if self._file is not None:
            self._file["time"][self._step], self._file[PLACE][self._step] = forecast.time, forecast.place
        self._step += 1

    def _write(self, rows: Mapping[str, torch.Tensor], *place: int) -> None:
        """Write rows of all ranks at a place before that of the nodes. Collective."""
        file, nodes = self._file, self._local.num_nodes
        order = OriginalOrder(rows, self._local.original_id, nodes, self._comm)
        if file is None:
            order.hand_over()
            return
        for name, width in order.widths.items():
            if name not in file:
                shape = *(self._count for _ in place), nodes, width
                create_dataset(file, name, shape, order.dtypes[name], axis=len(place))
        for ids, slab in order.slabs():
            for name, part in slab.items():
                file[name][(*place, slice(ids[0], ids[-1] + 1))] = part
            self._check()


@contextlib.contextmanager
def field_file(path: str | Path, trained: LoadedModel, count: int) -> Iterator[FieldFile]:
    """Yield a FieldFile of `count` times, which is there when it is whole. Collective."""
    with contextlib.ExitStack() as until_whole:
        file, check = None, None
        if trained.trainer.comm.rank == 0:
            file, check = until_whole.enter_context(written_file(until_whole.enter_context(replacing(path))))
        yield FieldFile(trained, count, file, check)
