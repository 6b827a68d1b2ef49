"""Whether the features and their kept aggregate fit in memory (`--memory`), or stay on disk.

Saved activations leave memory first, features last. An epoch reads a byte of features twice, forwards and backwards,
and once in each evaluation. It reads three times if the layer repeats its projections for the gradient. A saved byte is
written once and read once. So features cause no less traffic, and all of it while the first layer is at work. Saved
tensors move behind all layers.

Features that no layer reads leave first: a model that uses only their aggregate (gcn, sgc) reads them once in a run.
"""

import logging
from dataclasses import dataclass

import torch

from hpcgnn.comm.communicator import Communicator
from hpcgnn.engine.probe import StepProbe
from hpcgnn.extras.offload.folders import check_folder, check_space, folder_of
from hpcgnn.extras.offload.limits import Limit, portion
from hpcgnn.extras.offload.on_disk import bytes_at_work
from hpcgnn.extras.offload.pruned import FilteredSize, pruned_size
from hpcgnn.extras.offload.scratch import REQUEST, THREADS, ScratchFile
from hpcgnn.graph.local import LocalGraph
from hpcgnn.memory.resident import resident_bytes
from hpcgnn.memory.stored_rows import StoredRows
from hpcgnn.nn.registry import MODELS
from hpcgnn.nn.spec import ModelSpec
from hpcgnn.ops.row_tiles import tile_rows
from hpcgnn.plan.run_plan import RunPlan

log = logging.getLogger("hpcgnn")

# Bytes of each node that are allocated after its features: masks, and the node numbers of the splits.
_OF_NODE = 24


@dataclass(frozen=True)
class Placing:
    """A rank's data that goes to disk.

    Attributes:
        share: fraction of the columns that can be aggregated at a time.
    """

    features: bool
    aggregate: bool
    share: float


def place(room: int, at_work: int, kept: int, read: int, sizes: tuple[int, int], reads_input: bool) -> Placing:
    """Decide which data of a rank goes to disk.

    Args:
        room: bytes available.
        at_work: bytes of a layer at work, outside of `room`.
        kept: bytes that a step saves.
        read: bytes of memory for reading features and aggregate.
        sizes: bytes of the features, and of their aggregate.
        reads_input: whether the first layer reads its input in addition to the aggregate.
    """
    both = sum(sizes)
    fits = room >= both
    unread = not reads_input and room < both + kept
    features = (not fits or unread) and read < both
    aggregate = features and room - read < sizes[1]
    share = (room + at_work - read - (0 if aggregate else sizes[1])) / max(1, 2 * max(sizes))
    return Placing(features, aggregate, share)


def bytes_read_at_a_time(spec: ModelSpec, rows: int, columns: int, tile: int) -> int:
    """Return the bytes of memory for features and aggregate on disk: read blocks, and copies of helper threads."""
    return sum(bytes_at_work((rows, columns), dtype, tile) for dtype in types_on_disk(spec)) + THREADS * REQUEST


def bytes_of_constants(spec: ModelSpec, rows: int, columns: int, placing: Placing, tile: int) -> int:
    """Return the bytes of memory for the kept aggregate of features, or for reading it and them from disk."""
    held = rows * columns * spec.aggregate.itemsize
    if not placing.features:
        return held if spec.keeps_input else 0
    read = [bytes_at_work((rows, columns), dtype, tile) for dtype in types_on_disk(spec)]
    return sum(read) if placing.aggregate else read[0] + held * spec.constant_input


def can_lie_on_disk(plan: RunPlan) -> bool:
    """Whether the first layer reads its inputs in order, some rows at a time."""
    return plan.reads_in_tiles and not plan.config.data.inductive


def reads_input(spec: ModelSpec) -> bool:
    """Whether the first layer reads its input in addition to the aggregate."""
    return MODELS[spec.options.model].traits(spec).reads_self


def types_on_disk(spec: ModelSpec) -> tuple[torch.dtype, ...]:
    """Of the features, and of their aggregate where there is one that is kept."""
    held = spec.held or spec.dtype
    return (held, spec.aggregate) if spec.constant_input else (held,)


def reads_of_epoch(spec: ModelSpec) -> int:
    """Return how often a training epoch reads data on disk: the gradient may repeat projections."""
    return 2 if spec.constant_input else 3


def bytes_on_disk(spec: ModelSpec, rows: int, columns: int) -> tuple[int, int]:
    """Of the features, and of their aggregate, which may be none."""
    sizes = [rows * columns * dtype.itemsize for dtype in types_on_disk(spec)]
    return sizes[0], sum(sizes[1:])


def placed(
    plan: RunPlan, probe: StepProbe, limit: Limit, learns: bool, comm: Communicator, local: LocalGraph, columns: int
) -> tuple[ScratchFile | None, Placing]:
    """(the scratch file, or None where nothing goes to disk; the Placing). Collective, with the same Placing on all
    ranks.

    Args:
        plan: the run's decisions.
        probe: of a step on a small graph.
        limit: the node's limit.
        learns: whether the run trains, and so saves tensors for a backward pass.
        comm: the communicator.
        local: the share without its features.
        columns: of the features; 0 where they cannot lie on disk.

    Raises:
        ConfigError: the limit is too small for the parts of pruned layers.
    """
    config, spec, rows = plan.config, plan.spec, local.num_owned
    sees, memory = _sees_shares(plan, learns), (None, Placing(False, False, 1.0))
    sizes, kept = bytes_on_disk(spec, rows, columns), probe.kept(rows, local.inward.num_edges) if learns else 0
    lasting, at_work = _lasting(plan, probe, rows), probe.peak_working_set(rows)
    if not limit.said and _surely_fits(plan, probe, limit, learns, comm, local, sum(sizes)):
        return memory
    pruned = pruned_size(local, *probe.pruning, spec.keeps_input, comm) if sees else FilteredSize(0, 0)
    lasting, at_work = lasting + pruned.held, max(at_work, pruned.making)
    if columns == 0 or not can_lie_on_disk(plan):
        _check_pruned(limit, comm, lasting + sizes[0], at_work, pruned)
        return memory
    folder = folder_of(config)
    with comm.together("making a scratch file"):
        check_folder(folder, limit)
        scratch = ScratchFile(folder)
    read = bytes_read_at_a_time(spec, rows, columns, tile_rows())
    _check_pruned(limit, comm, lasting, at_work + read, pruned)
    given = portion(limit, comm, lasting + at_work, kept + sum(sizes))
    found = place(given.nbytes - lasting - at_work, at_work, kept, read, sizes, reads_input(spec))
    told = torch.tensor([-float(found.features), -float(found.aggregate), found.share], dtype=torch.float64)
    features, aggregate, share = comm.allreduce_(told, "plan", "min").tolist()
    if not features:
        return memory
    written = sum(limit.of_node(comm, sizes[0] + sizes[1] * bool(aggregate)))
    with comm.together("looking for room for the features"):
        check_space(folder, written, limit.ranks)
    log.info("memory: the features%s are on disk, in %s", " and their aggregate" if aggregate else "", folder)
    return scratch, Placing(True, bool(aggregate), share)


def fits(plan: RunPlan, probe: StepProbe, limit: Limit, learns: bool, comm: Communicator, local: LocalGraph) -> bool:
    """Whether a run surely stays within its limit without scratch files. Collective. local: the share, loaded; others
    as of `placed`.
    """
    if isinstance(local.features, StoredRows):
        return False
    aggregate = bytes_on_disk(plan.spec, local.num_owned, plan.spec.d_in)[1]
    return _surely_fits(plan, probe, limit, learns, comm, local, aggregate)


def _surely_fits(
    plan: RunPlan, probe: StepProbe, limit: Limit, learns: bool, comm: Communicator, local: LocalGraph, more: int
) -> bool:
    """Whether a run takes no more than its limit, with `more` bytes and the most that pruned layers may take: they have
    each edge at most once in each direction. Collective.
    """
    rows, pruned = local.num_owned, 4 * probe.pruning[1] * local.inward.structure_nbytes
    most = _lasting(plan, probe, rows) + probe.peak_working_set(rows) + more
    most += probe.kept(rows, local.inward.num_edges) * learns + pruned * _sees_shares(plan, learns)
    return portion(limit, comm, most).fits


def _lasting(plan: RunPlan, probe: StepProbe, rows: int) -> int:
    """Bytes of a rank from step to step: what is there now, and what is not allocated yet but for its features."""
    buffers = int(plan.config.schedule.halo_buffer * 2**20)
    return resident_bytes() + probe.beside + rows * _OF_NODE + buffers + 2 * probe.parameters  # and their gradients


def _sees_shares(plan: RunPlan, learns: bool) -> bool:
    """Whether layers may see parts of the graph."""
    return learns and plan.prunes and not plan.config.data.inductive


def _check_pruned(limit: Limit, comm: Communicator, lasting: int, at_work: int, pruned: FilteredSize) -> None:
    """Raise ConfigError, on all ranks, if the parts of pruned layers do not fit on one rank. Collective.

    Building them would exceed the limit. The room for training is checked afterwards.
    """
    given, making = portion(limit, comm, lasting + at_work), portion(limit, comm, lasting + pruned.making)
    with comm.together("looking for room for what pruned layers see"):
        if pruned.held and making.refused:
            raise limit.too_little(comm, given, lasting, at_work, pruned.held)
