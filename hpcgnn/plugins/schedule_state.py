"""The state of a schedule in checkpoints: tensors that it keeps from epoch to epoch, outside of the model.

A sync policy's tensors are the same on all ranks, and go to the checkpoint itself. Those of a halo policy belong to one
rank and one layout, and go to a file for each rank. With another layout, or a lost file, the schedule starts afresh,
and a warning reports it.
"""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcgnn.engine.checkpoint import Checkpoint, Tensors, save_rank_state
from hpcgnn.engine.hooks import Plugin

if TYPE_CHECKING:
    from hpcgnn.engine.trainer import Trainer

log = logging.getLogger("hpcgnn")


class ScheduleState(Plugin):
    """The state of a Trainer's schedule."""

    def __init__(self, trainer: "Trainer") -> None:
        self._trainer = trainer

    def state(self, run_dir: str | Path, epoch: int) -> dict[str, Tensors]:
        """The sync policy's tensors. Writes those of the halo policy. Collective."""
        trainer, halo = self._trainer, self._trainer.schedule.halo
        tensors = trainer.schedule.sync.state(trainer.optimizers)
        if halo.has_state:
            of_rank = halo.state()
            with trainer.comm.together("writing the state of the ranks"):
                save_rank_state(run_dir, epoch, trainer.comm.rank, of_rank, self._belongs())
        return {"schedule": tensors}

    def load(self, checkpoint: Checkpoint, best_only: bool = False) -> None:
        """Restore all of it, and the halo policy's on all ranks or on none. Collective."""
        trainer, halo = self._trainer, self._trainer.schedule.halo
        trainer.schedule.sync.restore(checkpoint.group("schedule"), trainer.optimizers)
        if not halo.has_state:
            return
        with trainer.comm.together("reading the state of the ranks"):
            tensors = checkpoint.rank_state(trainer.comm.rank, self._belongs())
        if all(trainer.comm.allgather_object(tensors is not None)):
            assert tensors is not None, "not None on any rank"
            halo.load_state(tensors)
        elif trainer.comm.rank == 0:
            log.warning(
                "the checkpoint has no state of --schedule %s for these ranks, this map and these options: the "
                "schedule starts afresh, and the curve may have a seam here",
                trainer.plan.config.schedule.schedule,
            )

    def _belongs(self) -> dict[str, Any]:
        """The layout that the state of a rank belongs to."""
        trainer, config = self._trainer, self._trainer.plan.config
        options = {name: value for name, value in vars(config.schedule).items() if name != "halo"}
        if trainer.local.inward.plan.sending.sums is not None:
            options["halo"] = "least"
        return {
            "ranks": trainer.comm.size,
            "partition": config.data.partition,
            "nodes": len(trainer.graph.ids),
            "schedule": options | {"halo_buffer": None},
        }


def make(trainer: "Trainer", learns: bool) -> ScheduleState | None:
    """The plugin of every Trainer that learns."""
    return ScheduleState(trainer) if learns else None
