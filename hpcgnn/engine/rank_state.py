"""State of single ranks outside the model, beside each checkpoint: one file per rank, for schedules with such state.

It belongs to one layout. With another layout, or a lost file, the schedule starts afresh, and a warning reports it.
"""

import logging
from typing import TYPE_CHECKING, Any

from hpcgnn.config import Config
from hpcgnn.engine.checkpoint import read_rank_state, save_rank_state

if TYPE_CHECKING:
    from hpcgnn.engine.trainer import Trainer


log = logging.getLogger("hpcgnn")


def save(trainer: "Trainer", config: Config, epoch: int) -> None:
    """Write the state of all ranks after `epoch` epochs. Collective; does nothing for a schedule without state."""
    halo = trainer.schedule.halo
    if not halo.has_state:
        return
    tensors = halo.state()
    with trainer.comm.together("writing the state of the ranks"):
        save_rank_state(config.run.run_dir, epoch, trainer.comm.rank, tensors, _belongs(trainer, config))


def load(trainer: "Trainer", config: Config, epoch: int) -> None:
    """Restore the schedule's state after `epoch` epochs, on all ranks or on none. Collective."""
    halo = trainer.schedule.halo
    if not halo.has_state:
        return
    with trainer.comm.together("reading the state of the ranks"):
        tensors = read_rank_state(config.run.run_dir, epoch, trainer.comm.rank, _belongs(trainer, config))
    if all(trainer.comm.allgather_object(tensors is not None)):
        assert tensors is not None, "not None on any rank"
        halo.load_state(tensors)
    elif trainer.comm.rank == 0:
        log.warning(
            "the checkpoint has no state of --schedule %s for these ranks, this map and these options: the schedule "
            "starts afresh, and the curve may have a seam here",
            config.schedule.schedule,
        )


def _belongs(trainer: "Trainer", config: Config) -> dict[str, Any]:
    options = {name: value for name, value in vars(config.schedule).items() if name != "halo"}
    if trainer.local.inward.plan.sending.sums is not None:
        options["halo"] = "least"
    return {
        "ranks": trainer.comm.size,
        "partition": config.data.partition,
        "nodes": len(trainer.graph.ids),
        "schedule": options | {"halo_buffer": None},
    }
