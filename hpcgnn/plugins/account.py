"""Where the memory of a rank should be: an account to hold against what the kernel measures.

Lasting memory is counted, not estimated: every tensor that can be reached from the trainer, each storage once, and the
shared memory of the MPI library, as the kernel counts it. Memory of a step (activations kept for the backward pass,
workspace) is what was taken of the arena. The arena keeps the rest of its memory for other phases. That rest stays
resident and has a line of its own, since it is neither activations nor workspace. Tensors that torch's operations make
outside of the arena are counted as they are made. Of those that were on the heap, and are gone, the allocator keeps
some memory for the next. Nothing is fitted to a measurement. The difference to the measurement
is what libraries hold, and the workspace inside of single operations.
"""

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hpcgnn.engine.clock import PHASES
from hpcgnn.graph.local import LocalGraph
from hpcgnn.plugins.memory_profile import TRIM_THRESHOLD

if TYPE_CHECKING:
    from hpcgnn.engine.trainer import Trainer
    from hpcgnn.plugins.memory_profile import MemoryProfile


MODEL, OTHER, MPI = "parameters, gradients, optimizer", "masks, scales and halo ids", "shared memory of MPI"
SHARED = "activations that the node reads"
TAKEN, MADE = "activations and workspace", "tensors outside the arena"
FREE = "arena, resident but not in use then"
FREE_HEAP = "heap, resident but not in use then"


def make_account(
    trainer: "Trainer", local: LocalGraph, profile: "MemoryProfile", mpi_bytes: int = 0
) -> dict[str, dict[str, int]]:
    """{phase: {item: bytes}} for the phases of training and evaluation of this rank, after at least one step.

    profile: of these phases. mpi_bytes: what MPI's shared memory has grown by.
    """
    lasting: dict[str, int] = {}
    seen: set[Any] = set()
    arena, views = trainer.buffers.arena, trainer.views
    roots = {
        "features": (local.features, *(each.features for each in (views.nodes, views.subgraph) if each)),
        "labels, split and ids": (local.labels, local.split, local.original_id),
        "graph structure and plan": (local.inward, local.outward, local.feature_rows, views.shares, views.subgraph),
        "kept input aggregate": trainer.constants,
        "halo buffers": trainer.buffers,
        MODEL: (trainer.model, trainer.gradients, trainer.optimizer.state, trainer.plugins.held()),
        OTHER: trainer,
    }
    for item, root in roots.items():
        lasting[item] = held_bytes(root, seen)
    lasting[MPI] = mpi_bytes
    if views.in_place is not None:
        lasting[SHARED] = views.in_place.own_bytes
    lasting[MODEL] += trainer.plugins.later_bytes()
    lasting[MODEL] += sum(p.nbytes for p in trainer.model.parameters())  # the best so far, which the epoch loop holds
    # It has a line of its own.
    constants = (each for each in trainer.constants.values() if isinstance(each, torch.Tensor))  # others are on disk
    kept = sum(constant.nbytes for constant in constants if arena.holds(constant))
    heap = min(TRIM_THRESHOLD, max(profile.on_heap.values(), default=0))
    account = {}
    for phase in (*PHASES, "evaluation"):
        taken = profile.taken.get(phase, 0)
        account[phase] = lasting | {TAKEN: max(0, taken - kept), FREE: arena.nbytes - max(taken, kept)}
        account[phase][MADE] = profile.made.get(phase, 0)
        account[phase][FREE_HEAP] = max(0, heap - profile.on_heap.get(phase, 0))
    return account


def held_bytes(root: object, seen: set[Any]) -> int:
    """Bytes of all tensors and arrays that can be reached from an object through attributes and containers.

    seen: set of what has been counted already, added to; each storage counts once, whatever views there are of it.
    """
    total, pending = 0, [root]
    key: Any
    while pending:
        thing = pending.pop()
        if isinstance(thing, torch.Tensor):
            storage = thing.untyped_storage()
            key, size = ("storage", storage.data_ptr()), storage.nbytes()
            pending += [thing.grad] if thing.is_leaf and thing.grad is not None else []
        elif isinstance(thing, np.ndarray):
            key, size = ("storage", thing.__array_interface__["data"][0]), thing.nbytes
        else:
            key, size = id(thing), 0
        if key in seen:
            continue
        seen.add(key)
        total += size
        pending += _parts(thing)
    return total


def _parts(thing: Any) -> list[Any]:
    if isinstance(thing, dict):
        return list(thing.values())
    if isinstance(thing, (list, tuple, set)):
        return list(thing)
    if isinstance(thing, torch.nn.Module):
        return [*thing.parameters(), *thing.buffers()]
    if dataclasses.is_dataclass(thing) or type(thing).__module__.startswith("hpcgnn"):
        return list(getattr(thing, "__dict__", {}).values())
    return []
