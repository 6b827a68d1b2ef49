"""The memory policy of a job with a limit."""

import logging

from hpcgnn.comm.session import Session
from hpcgnn.engine.memory_policy import MemoryPolicy
from hpcgnn.engine.probe import StepProbe
from hpcgnn.engine.trainer import Trainer
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.extras.offload.activations import check_room, hold_within
from hpcgnn.extras.offload.features import fits, placed
from hpcgnn.extras.offload.limits import Limit, without_limit_if_it_must
from hpcgnn.extras.offload.on_disk import OnDisk
from hpcgnn.extras.offload.writing import write_features
from hpcgnn.graph.local import LocalGraph
from hpcgnn.graph.own_rows import OwnRows
from hpcgnn.ops.row_tiles import tile_rows
from hpcgnn.plan.run_plan import RunPlan

log = logging.getLogger("hpcgnn")
# Columns that are aggregated together are a multiple of these, a line of the cache.
_COLUMNS = 16


class WithinLimit(MemoryPolicy):
    """Keeps a rank within a Limit: a scratch file takes the rest."""

    def __init__(
        self, plan: RunPlan, session: Session, buffers: HaloBuffers, probe: StepProbe, learns: bool, limit: Limit
    ) -> None:
        self._plan, self._comm, self._arena, self._probe = plan, session.comm, buffers.arena, probe
        self._learns, self._limit = learns, limit

    def features(self, local: LocalGraph, source: OwnRows) -> OnDisk | None:
        if self._plan.in_place:  # what the node shares is never on disk
            return None
        comm, columns, scratch = self._comm, source.columns, None
        with without_limit_if_it_must(self._limit, comm):
            scratch, placing = placed(self._plan, self._probe, self._limit, self._learns, comm, local, columns)
        if scratch is None:
            return None
        width = min(columns, max(_COLUMNS, int(placing.share * columns) // _COLUMNS * _COLUMNS))
        shape = local.num_owned, columns
        matrix = OnDisk(scratch, self._arena, shape, source.dtype, tile_rows(), width, placing.aggregate)
        with comm.together("reading the graph"):
            return write_features(matrix, source.file, source.ranges, source.order)

    def reads_in_place(self, local: LocalGraph) -> bool:
        if fits(self._plan, self._probe, self._limit, self._learns, self._comm, local):
            return True
        log.info("--intra-node auto: messages; this job may need scratch files, and shared memory never goes there")
        return False

    def begin(self, trainer: Trainer) -> None:
        if not self._learns:
            check_room(trainer, self._probe, self._limit)
            return
        with without_limit_if_it_must(self._limit, self._comm):
            hold_within(trainer, self._probe, self._limit)
