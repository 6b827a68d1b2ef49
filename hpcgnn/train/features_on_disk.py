"""Whether the features, and their aggregate that is kept, have room in memory (`--memory`), or are read from disk.

They go last. A byte of them is read twice in an epoch, forwards and backwards, and once in each evaluation; a byte that
a step keeps is written and read once. So they move no fewer bytes, and all of them at once, while the first layer is at
work, where the others go and come behind all layers. But what nobody reads goes first: a model that reads its features
through their aggregate alone (gcn, sgc) reads them once in a run.
"""

import logging
import tempfile
from dataclasses import dataclass, replace

import torch

from hpcgnn.comm.session import Session
from hpcgnn.config import Config
from hpcgnn.errors import ScratchError
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.graph.load import Shelve
from hpcgnn.memory.resident import resident_bytes
from hpcgnn.memory.scratch import REQUEST, THREADS, Scratch
from hpcgnn.memory.shelf import Shelf
from hpcgnn.nn.spec import ModelSpec
from hpcgnn.ops.row_tiles import tile_rows
from hpcgnn.schedules.schedule_registry import prunes
from hpcgnn.train.within_memory import AT_WORK, Toy, bytes_of, check_folder, check_space, toy_of

log = logging.getLogger("hpcgnn")

# Columns that are aggregated together are a multiple of these, a line of the cache.
_COLUMNS = 16
# Of a node: original id, labels, split, masks.
_OF_NODE = 40


@dataclass(frozen=True)
class Placing:
    """What goes to disk of a rank. share: of the columns, that can be aggregated at a time."""

    features: bool
    aggregate: bool
    share: float


def place(room: int, at_work: int, kept: int, read: int, sizes: tuple[int, int], reads_input: bool) -> Placing:
    """What goes where, of a rank with so many bytes of room besides a layer at work (at_work). kept: bytes that a step
    keeps; sizes: bytes of a column of the features, and of one of their aggregate, times their width; read: bytes of
    memory that reading both takes.
    """
    both = sum(sizes)
    fits = room >= both
    unread = not reads_input and room < both + kept
    features = (not fits or unread) and read < both
    aggregate = features and room - read < sizes[1]
    share = (room + at_work - read - (0 if aggregate else sizes[1])) / max(1, 2 * max(sizes))
    return Placing(features, aggregate, share)


def can_lie_on_disk(config: Config, spec: ModelSpec, toy: Toy) -> bool:
    """Whether the first layer reads its inputs in order, some rows at a time."""
    raw = spec.input_dropout == "raw" and spec.dropout > 0
    alone = config.schedule.schedule == "lazy" and not config.schedule.finetune
    kept = spec.keeps_input or alone and spec.constant_input and not spec.sparse_input and not raw
    return toy.in_tiles and kept and not config.data.inductive and not spec.changing


def shelving(config: Config, session: Session, spec: ModelSpec, task: str, buffers: HaloBuffers) -> Shelve:
    """What load_local_graph asks for a Shelf: collective, and the same on all ranks."""
    if not config.run.memory:
        return lambda rows, columns, edges: None
    comm, toy = session.comm, toy_of(spec, config, task)

    def shelve(rows: int, columns: int, edges: int) -> Shelf | None:
        if not can_lie_on_disk(config, spec, toy):
            return None
        folder, arena = config.run.scratch or tempfile.gettempdir(), buffers.arena
        types = spec.dtype, spec.kept or spec.dtype
        lasting = resident_bytes() + toy.beside + rows * _OF_NODE + int(config.schedule.halo_buffer * 2**20)
        lasting += edges * (prunes(config) and config.schedule.prune == "auto")  # what layers see of the graph
        at_work = AT_WORK * toy.largest * rows
        room = bytes_of(config.run.memory) // session.ranks_on_node - lasting - at_work
        with comm.together("making a scratch file"):
            check_folder(folder)
            shelf = Shelf(Scratch(folder, ScratchError), arena, tile_rows(), columns)
        # Blocks that are read, and what helper threads copy as they write.
        read = sum(shelf.at_work(rows, columns, dtype) for dtype in types) + THREADS * REQUEST
        sizes = rows * columns * types[0].itemsize, rows * columns * types[1].itemsize
        found = place(room, at_work, toy.per_node * rows, read, sizes, toy.reads_input)
        told = torch.tensor([-float(found.features), -float(found.aggregate), found.share], dtype=torch.float64)
        features, aggregate, share = comm.allreduce_(told, "plan", "min").tolist()
        if not features:
            return None
        width = max(_COLUMNS, int(share * columns) // _COLUMNS * _COLUMNS)
        with comm.together("looking for room for the features"):
            check_space(folder, sizes[0] + sizes[1] * bool(aggregate), session.ranks_on_node)
        log.info("memory: the features%s are on disk, in %s", " and their aggregate" if aggregate else "", folder)
        return replace(shelf, columns=min(width, columns), results=bool(aggregate))

    return shelve
