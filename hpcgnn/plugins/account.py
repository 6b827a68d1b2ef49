"""The expected memory of a rank, item by item, to compare with the kernel's measurement.

Lasting memory is counted, not estimated. The count covers every tensor reachable from the trainer, each storage once,
and the kernel's counts of the MPI library's shared memory and of program code. Python's larger objects and libraries,
such as HDF5 and MPI, have the rest of the bytes that malloc has given. Memory of a step (activations kept for the
backward pass, workspace) is the amount in use in the arena. The arena keeps its other memory for later phases. That
rest stays resident and has a line of its own, since it is neither activations nor workspace.

Tensors of torch's own operations outside the arena are counted as they are made. For freed tensors that were on the
heap, the allocator keeps some memory for the next ones. No item is fitted to a measurement. The difference from the
measurement is small objects of Python, which malloc does not serve, untouched pages, and workspace inside single
operations.
"""

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hpcgnn.engine.clock import PHASES
from hpcgnn.graph.local import LocalGraph
from hpcgnn.memory.resident import FEW, malloc_thresholds

if TYPE_CHECKING:
    from hpcgnn.engine.trainer import Trainer
    from hpcgnn.plugins.memory_use import MemoryProfile


MODEL, OTHER, MPI = "parameters, gradients, optimizer", "masks, scales and halo ids", "shared memory of MPI"
CODE = "program code, loaded since"
OBJECTS = "objects of Python and of libraries"
SNAPSHOTS = "rows of the graph file that a step reads"
SHARED = "what the ranks of a node share"
TAKEN, MADE = "activations and workspace", "tensors outside the arena"
FREE = "arena, resident but not in use then"
FREE_HEAP = "heap, resident but not in use then"


def make_account(
    trainer: "Trainer",
    local: LocalGraph,
    profile: "MemoryProfile",
    mpi_bytes: int = 0,
    code_bytes: int = 0,
    given_bytes: int = 0,
    free_bytes: int = FEW.free,
) -> dict[str, dict[str, int]]:
    """Return {phase: {item: bytes}} for the phases of training and evaluation of this rank, after at least one step.

    Args:
        trainer: the trainer.
        local: the rank's share of the graph.
        profile: the measurement of the same phases.
        mpi_bytes, code_bytes: growth of MPI's shared memory, and of program code, in bytes.
        given_bytes, free_bytes: growth of the bytes that malloc has given, and of the bytes that it keeps.
    """
    lasting: dict[str, int] = {}
    seen: set[Any] = set()
    arena, views = trainer.buffers.arena, trainer.views
    if views.in_place is not None:  # counted below, by this rank's share
        seen |= {("storage", address) for address in views.in_place.common_storages()}
    roots = {
        "features": (local.features, *(each.features for each in (views.nodes, views.subgraph) if each)),
        "labels, split and ids": (local.labels, local.split, local.original_id),
        "graph structure and plan": (local.inward, local.outward, views.shares, views.subgraph),
        SNAPSHOTS: trainer.evaluator.rows(),
        "kept input aggregate": trainer.constants,
        "halo buffers": trainer.buffers,
        MODEL: (trainer.model, trainer.gradients, trainer.optimizer.state, [each.held() for each in trainer.plugins]),
        OTHER: trainer,
    }
    for item, root in roots.items():
        lasting[item] = held_bytes(root, seen)
    lasting[MODEL] += sum(each.later_bytes() for each in trainer.plugins)
    lasting[MODEL] += sum(p.nbytes for p in trainer.model.parameters())  # the best so far, which the epoch loop holds
    # It has a line of its own.
    constants = (each for each in trainer.constants.values() if isinstance(each, torch.Tensor))  # others are on disk
    kept = sum(constant.nbytes for constant in constants if arena.holds(constant))
    # Tensors in the arena have nothing from malloc.
    objects = max(0, given_bytes + kept - sum(lasting.values()))
    lasting |= {MPI: mpi_bytes, CODE: code_bytes, OBJECTS: objects}
    if views.in_place is not None:
        lasting[SHARED] = views.in_place.own_bytes + views.in_place.common_bytes()
    heap = min(malloc_thresholds().free, max(profile.on_heap.values(), default=0), free_bytes)
    account = {}
    for phase in (*PHASES, "evaluation"):
        taken = profile.taken.get(phase, 0)
        account[phase] = lasting | {TAKEN: max(0, taken - kept), FREE: arena.nbytes - max(taken, kept)}
        account[phase][MADE] = profile.made.get(phase, 0)
        account[phase][FREE_HEAP] = max(0, heap - profile.on_heap.get(phase, 0))
    return account


def held_bytes(root: object, seen: set[Any]) -> int:
    """Return the bytes of all tensors and arrays reachable from an object through attributes and containers.

    Args:
        root: the object.
        seen: storages that are already counted; the function adds to it. Each storage counts once, for all its views.
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
