"""Where numbers stopped being finite: asked once, when the loss or a gradient is not, so that a healthy epoch pays
nothing.
"""

import contextlib
import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from hpcgnn.comm.communicator import Communicator
from hpcgnn.errors import TrainingError
from hpcgnn.schedules.base import Step

if TYPE_CHECKING:
    from hpcgnn.engine.trainer import Trainer


def first_not_finite(
    model: torch.nn.Module,
    again: Callable[[], torch.Tensor | None],
    comm: Communicator,
    what: str = "loss",
    stage: torch.nn.Module | None = None,
) -> str:
    """Describe the first tensor in the forward pass that is not finite, and its rank. Collective.

    Args:
        model: the model.
        again: computes the forward pass once more, and returns this rank's share of the loss; None: it has no part.
        comm: the communicator.
        what: 'loss', or 'gradient' if the loss is finite. Then, if the forward pass is finite too, the text names the
            first parameter with a gradient that is not.
        stage: the module that is trained, if it is not the model.
    """
    for name, parameter in model.named_parameters():
        if not torch.isfinite(parameter).all():
            return f"parameter {name} is not finite already"
    order, found = itertools.count(1), list[tuple[int, str]]()

    def look(name: str, module: torch.nn.Module, inputs: Any, output: Any) -> None:
        number, rows = next(order), getattr(output, "rows", output)  # of a layer that hands its output over
        if not found and isinstance(rows, torch.Tensor) and not torch.isfinite(rows).all():
            found.append((number, f"{name} ({type(module).__name__})"))

    watched = {name: module for name, module in model.named_modules() if name}
    if stage is not None:
        watched["in training"] = stage
    with contextlib.ExitStack() as hooks:
        for name, module in watched.items():
            hooks.callback(module.register_forward_hook(partial(look, name)).remove)
        loss = again()
    firsts = enumerate(comm.allgather_object(found[0] if found else None))
    if everyone := [(first[0], rank, first[1]) for rank, first in firsts if first is not None]:
        _, rank, name = min(everyone)
        return f"the first output that is not finite is that of layer {name}, on rank {rank}"
    if not all(comm.allgather_object(loss is None or bool(loss.isfinite()))):
        return "every layer's output is finite, the loss of them is not"
    if what == "loss":
        return "a second pass was finite"
    names = [name for name, p in model.named_parameters() if p.grad is not None and not torch.isfinite(p.grad).all()]
    gradients = [name for name in comm.allgather_object(names[0] if names else None) if name]
    which = f", the gradient of {gradients[0]} is not" if gradients else ""
    return f"every layer's output and the loss are finite{which}"


def check_finite(trainer: "Trainer", local_loss: torch.Tensor, finite: bool, tried: Step | None, epoch: int) -> float:
    """Return the sum of the ranks' shares of the loss in float64. Collective.

    Args:
        trainer: the trainer.
        local_loss: this rank's share of the loss.
        finite: whether this rank's gradients are finite.
        tried: its last step that was to move parameters, if it had any: the one that failed, if one did.
        epoch: number of the epoch.

    Raises:
        TrainingError: on all ranks, if the loss or a gradient is not finite.
    """
    loss = float(local_loss)
    bad = [float(not math.isfinite(loss)), float(not finite)]
    total, *faults = trainer.comm.total(torch.tensor([loss, *bad], dtype=torch.float64)).tolist()
    if any(faults):
        raise _failure(trainer, bad, tried, epoch)
    return float(total)


def _failure(trainer: "Trainer", bad: list[float], tried: Step | None, epoch: int) -> TrainingError:
    """Return the error that names the fault and its ranks. bad: two of this rank, see `check_finite`. Collective."""
    comm, module = trainer.comm, trainer.stage.module
    losses, gradients = torch.tensor(comm.allgather_object(bad)).T
    what, flags = ("loss", losses) if losses.any() else ("gradient", gradients)
    # Where ranks step alone, only some may have failed at the first step of these.
    number = tried.number if tried is not None and bad[1] else math.inf
    step = tried if number == min(comm.allgather_object(number)) else None

    def again() -> torch.Tensor | None:
        trainer.random.epoch = epoch
        trainer.schedule.halo.begin_epoch(epoch)
        return None if step is None else trainer.local_loss(step, epoch)

    ranks = ", ".join(str(rank) for rank in torch.nonzero(flags).flatten().tolist())
    where = first_not_finite(trainer.model, again, comm, what, None if module is trainer.model else module)
    return TrainingError.on_all(
        f"the {what} is not finite in epoch {epoch + 1} on rank {ranks}: {where}; expected a finite "
        f"{what}. Lower --lr, set --clip-norm, or look for extreme features; the last checkpoint is kept"
    )
