"""Training within a memory limit (`--memory`): saved activations go to a scratch file if the limit requires it.

The size of a step is known before the first one: a step on a small graph gives the bytes per node. So the free disk
space is checked before the first epoch. The first epoch already writes tensors before memory runs out.
"""

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

import torch

from hpcgnn.engine.memory_policy import SavedTensors
from hpcgnn.engine.probe import StepProbe
from hpcgnn.engine.trainer import Trainer
from hpcgnn.extras.offload.features import Placing, bytes_of_constants
from hpcgnn.extras.offload.folders import check_folder, check_space, folder_of
from hpcgnn.extras.offload.keeping import DiskKeeper
from hpcgnn.extras.offload.limits import Limit, portion
from hpcgnn.extras.offload.on_disk import OnDisk
from hpcgnn.extras.offload.options import READ, WRITTEN
from hpcgnn.extras.offload.scratch import ScratchFile
from hpcgnn.memory.resident import resident_bytes
from hpcgnn.ops.row_tiles import tile_rows

log = logging.getLogger("hpcgnn")


class ActivationOffloader(SavedTensors):
    """Keeps a Trainer within a number of bytes."""

    def __init__(self, trainer: Trainer, budget: int, folder: str, kept: int) -> None:
        """folder: of the scratch file; features on disk may have made it already. kept: bytes that a step saves."""
        super().__init__(trainer)
        features, self._folder = trainer.local.features, folder
        self._scratch = features.scratch if isinstance(features, OnDisk) else ScratchFile(folder)
        self.keeper = trainer.buffers.arena.keeper = DiskKeeper(trainer.buffers.arena, budget, self._scratch)
        self.keeper.most = kept
        self._told = 0, 0

    @contextlib.contextmanager
    def forward(self) -> Iterator[None]:
        self.keeper.begin()
        with super().forward():
            yield

    def end_epoch(self) -> None:
        """Book the bytes written and read since the last call."""
        now = self._scratch.written, self._scratch.read
        for kind, count, before in zip((WRITTEN, READ), now, self._told, strict=True):
            if count > before:
                self._trainer.comm.ledger.add(kind, messages=1, bytes_sent=count - before)
        self._told = now

    def record(self) -> dict[str, Any]:
        """Of this rank, for its record."""
        scratch = {
            "folder": self._folder,
            "budget_bytes": self.keeper.budget,
            "file_bytes": self._scratch.nbytes,
            "written_bytes": self._scratch.written,
            "read_bytes": self._scratch.read,
            "waiting_seconds": self.keeper.waited,
            "past_the_page_cache": self._scratch.direct,
        }
        return {"scratch": scratch}


def hold_within(trainer: Trainer, probe: StepProbe, limit: Limit) -> None:
    """Let a Trainer stay within its Limit. Collective. Raises ConfigError or ScratchError where that cannot be."""
    comm, local = trainer.comm, trainer.local
    features, kept = local.features, probe.kept(local.num_owned, local.inward.num_edges)
    lasting, at_work = needs(trainer, probe, limit)
    lasting += trainer.schedule.halo.kept_bytes  # their pages are not resident yet
    given = portion(limit, comm, lasting + at_work, kept)
    budget = given.nbytes - lasting
    over = max(0, kept + at_work - budget)
    over_node, over_all = sum(limit.of_node(comm, over)), int(comm.total(torch.tensor([over]), "plan"))
    if not (limit.said or over_all or isinstance(features, OnDisk)):
        return
    if trainer.views.in_place is not None:
        log.warning(
            "memory may not be enough: a node has %.2f GiB for its ranks, and this one lacks %.2f GiB; with "
            "--intra-node shared nothing goes to scratch files, with --intra-node messages it can",
            limit.total / 2**30,
            over_node / 2**30,
        )
        return
    folder = folder_of(trainer.plan.config)
    pruned = sum(
        share.inward.structure_nbytes + share.outward.structure_nbytes
        for share in trainer.views.shares
        if share and share.inward is not trainer.local.inward
    )
    with comm.together("looking for room for what training keeps"):
        if given.refused:
            raise limit.too_little(comm, given, lasting, at_work, pruned)
        if not isinstance(features, OnDisk):  # else it has been looked at
            check_folder(folder, limit)
        check_space(folder, over_node, limit.ranks)
    with comm.together("making a scratch file"):
        trainer.plugins.append(ActivationOffloader(trainer, budget, folder, kept + at_work))
    log.info(
        "memory: %.2f GiB for the ranks of a node%s; a step keeps up to %.2f GiB on this rank, and %.2f GiB of all "
        "ranks' go to scratch files in %s",
        limit.total / 2**30,
        "" if limit.said else ", which is what they have (--memory auto)",
        kept / 2**30,
        over_all / 2**30,
        folder,
    )


def check_room(trainer: Trainer, probe: StepProbe, limit: Limit) -> None:
    """Raise ConfigError, on all ranks, if --memory is too small for a Trainer that only evaluates. Collective."""
    if not limit.said:
        return
    lasting, at_work = needs(trainer, probe, limit)
    given = portion(limit, trainer.comm, lasting + at_work)
    with trainer.comm.together("looking for room for a layer at work"):
        if given.refused:
            raise limit.too_little(trainer.comm, given, lasting, at_work)


def needs(trainer: Trainer, probe: StepProbe, limit: Limit) -> tuple[int, int]:
    """Return (lasting bytes, additional bytes of a layer at work). Collective.

    The kept aggregate of features on disk goes to disk as well if it does not fit.
    """
    features, layer = trainer.local.features, probe.peak_working_set(trainer.local.num_owned)
    lasting = resident_bytes() + probe.beside + int(trainer.plan.config.schedule.halo_buffer * 2**20)
    at_work = layer + _constants_in_arena(trainer)
    on_disk = isinstance(features, OnDisk) and not features.results
    if isinstance(features, OnDisk) and on_disk and not portion(limit, trainer.comm, lasting + at_work).fits:
        features.results = True  # loading has left less than was foreseen, and the aggregate is not made yet
        at_work = layer + _constants_in_arena(trainer)
    return lasting, at_work


def _constants_in_arena(trainer: Trainer) -> int:
    """Return the arena bytes for the kept aggregate of the features, or for reading it from disk."""
    features = trainer.local.features
    if not isinstance(features, torch.Tensor | OnDisk):
        return 0
    placing = Placing(True, features.results, 1.0) if isinstance(features, OnDisk) else Placing(False, False, 1.0)
    rows, columns = features.shape
    return bytes_of_constants(trainer.model.spec, rows, columns, placing, tile_rows())
