"""Losses and gradients that are not finite end a run on all ranks."""

import math

import torch

from hpcgnn.comm.communicator import Communicator
from hpcgnn.errors import TrainingError
from hpcgnn.word_list import ranges


def check_finite(comm: Communicator, share: float, finite: bool, epoch: int) -> float:
    """Return the sum of the ranks' shares of the loss in float64. Collective.

    Args:
        comm: the communicator.
        share: this rank's share of the loss.
        finite: whether this rank's gradients are finite.
        epoch: number of the epoch.

    Raises:
        TrainingError: on all ranks, if the loss or a gradient is not finite.
    """
    bad = [not math.isfinite(share), not finite]
    total, *faults = comm.total(torch.tensor([share, *bad], dtype=torch.float64)).tolist()
    if any(faults):
        losses, gradients = torch.tensor(comm.allgather_object(bad)).T
        what, flags = ("loss", losses) if losses.any() else ("gradient", gradients)
        raise TrainingError.on_all(
            f"the {what} is not finite in epoch {epoch + 1} on rank {ranges(flags.nonzero().flatten().tolist())}; "
            f"expected a finite {what}. Lower --lr, set --clip-norm, or look for extreme features; the last checkpoint "
            "is kept"
        )
    return float(total)
