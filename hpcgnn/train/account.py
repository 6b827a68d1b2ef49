"""Where the memory of a rank should be: an account to hold against what the kernel measures.

What lasts is counted, not estimated: every tensor that can be reached from the trainer, each storage once. What lives only
inside a step (activations kept for the backward pass, workspace) is told by `nn/footprint.py` from the model's
specification and the number of own nodes. Nothing is fitted to a measurement; what the account does not explain is left
standing as the difference.
"""

import dataclasses

import numpy as np
import torch

from hpcgnn.nn.footprint import footprint
from hpcgnn.train.clock import PHASES

MODEL, OTHER = "parameters, gradients, optimizer", "masks, scales and halo ids"
KEPT, WORKSPACE = "activations kept for the backward", "workspace"


def make_account(trainer, local, spec):
    """{phase: {item: bytes}} for the phases of training and evaluation of this rank, after at least one step.

    For a model that `footprint` does not tell of, forward, backward and evaluation lack the activations and the workspace.
    """
    lasting, seen = {}, set()
    roots = {
        "features": local.features,
        "labels, split and ids": (local.labels, local.split, local.original_id),
        "graph structure and plan": (local.inward, local.outward),
        "kept input aggregate": trainer.constants,
        "halo buffers": trainer.buffers,
        MODEL: (trainer.model, trainer.gradients, trainer.optimizer.state),
        OTHER: trainer,
    }
    for item, root in roots.items():
        lasting[item] = held_bytes(root, seen)
    parameters = sum(p.nbytes for p in trainer.model.parameters())
    lasting[MODEL] += parameters  # the best parameters so far, which the epoch loop holds
    inside = {"reduction": (0, parameters), "step": (0, 0)}
    rows = local.num_owned * spec.dtype.itemsize
    columns = footprint(spec, float(local.mask("train").sum()) / max(1, local.num_owned))
    if columns is not None:
        inside |= {
            "forward": (columns.kept * rows, (columns.forward - columns.kept) * rows),
            "backward": (columns.kept * rows, (columns.backward - columns.kept) * rows),
            "evaluation": (0, columns.evaluation * rows),
        }
    account = {phase: dict(lasting) for phase in (*PHASES, "evaluation")}
    for phase, (kept, more) in inside.items():
        account[phase] |= {KEPT: int(kept), WORKSPACE: int(more)}
    return account


def held_bytes(root, seen):
    """Bytes of all tensors and arrays that can be reached from an object through attributes and containers.

    seen: set of what has been counted already, added to; each storage counts once, whatever views there are of it.
    """
    total, pending = 0, [root]
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


def _parts(thing):
    if isinstance(thing, dict):
        return list(thing.values())
    if isinstance(thing, (list, tuple, set)):
        return list(thing)
    if isinstance(thing, torch.nn.Module):
        return [*thing.parameters(), *thing.buffers()]
    if dataclasses.is_dataclass(thing) or type(thing).__module__.startswith("hpcgnn"):
        return list(getattr(thing, "__dict__", {}).values())
    return []
