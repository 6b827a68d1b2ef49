"""Real numbers per node: squared, absolute or Huber's error, and MAE, RMSE and R², exact over all ranks.

Targets are (n, T), with NaN for unknown ones, which no sum counts. By default a model learns targets standardised by
the training nodes' mean and deviation. So neither its initial outputs nor the learning rate depend on the user's units.
Metrics and predictions are in these units. All sums use float64. R² and the deviation take the mean first, and then
squares of differences. The formula Σy² − (Σy)²/n loses all digits if the mean is large.
"""

import math
from collections.abc import Callable, Sequence
from typing import ClassVar

import torch
import torch.nn.functional as F

from hpcgnn.comm.communicator import Communicator
from hpcgnn.memory.arena import Arena
from hpcgnn.tasks.base import TARGETS, Metric, Scale, Setting
from hpcgnn.tasks.labels import LabelTask

_LOSSES: dict[str, Callable[..., torch.Tensor]] = {"mse": F.mse_loss, "mae": F.l1_loss, "huber": F.huber_loss}


def mae(outputs: torch.Tensor, targets: torch.Tensor, mask: torch.Tensor, comm: Communicator) -> float:
    """The mean of |output − target| over all known targets of the nodes. outputs, targets (n_p, T), mask bool (n_p,).
    Collective.
    """
    error, known = _errors(outputs, targets, mask)
    total, count = comm.total(torch.stack([error.abs().sum(), known.sum().double()])).tolist()
    return total / count if count else math.nan


def rmse(outputs: torch.Tensor, targets: torch.Tensor, mask: torch.Tensor, comm: Communicator) -> float:
    """The root of the mean of squared errors, likewise."""
    error, known = _errors(outputs, targets, mask)
    total, count = comm.total(torch.stack([error.square().sum(), known.sum().double()])).tolist()
    return math.sqrt(total / count) if count else math.nan


def r2(outputs: torch.Tensor, targets: torch.Tensor, mask: torch.Tensor, comm: Communicator) -> float:
    """The coefficient of determination 1 − Σ(y − output)² / Σ(y − mean)², the mean of the columns of targets; those
    that are all alike have none, and count nowhere.
    """
    error, known = _errors(outputs, targets, mask)
    _, deviations = spread(targets[mask], comm)
    remains = comm.total(torch.stack([error.square().sum(0), known.sum(0).double()]))
    varies = deviations > 0
    if not varies.any():
        return math.nan
    return float((1 - remains[0, varies] / (deviations[varies].square() * remains[1, varies])).mean())


def _errors(outputs: torch.Tensor, targets: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(float64 (m, T): output − target, 0 where it is not known; bool (m, T): whether it is)."""
    wanted = targets[mask].double()
    known = wanted == wanted
    return torch.where(known, outputs[mask].double() - wanted, 0.0), known


def spread(targets: torch.Tensor, comm: Communicator) -> tuple[torch.Tensor, torch.Tensor]:
    """(mean, deviation), float64 (T,), of the known targets (n_p, T) of all ranks; 0 where none is known.
    Collective.
    """
    wanted = targets.double()
    known = wanted == wanted
    largest = torch.full((1, wanted.shape[1]), -torch.inf, dtype=torch.float64)
    largest = torch.cat([torch.where(known, wanted, -torch.inf), largest]).amax(0)
    comm.allreduce_(largest, "metrics", "max")
    # Targets that are all alike differ from the largest by nothing, so that their deviation is no error of rounding.
    shift = torch.where(torch.isinf(largest), 0.0, largest)
    sums = comm.total(torch.stack([torch.where(known, wanted - shift, 0.0).sum(0), known.sum(0).double()]))
    count = sums[1].clamp_min(1.0)
    mean = shift + sums[0] / count
    squares = comm.total(torch.where(known, wanted - mean, 0.0).square().sum(0))
    return mean, torch.where(sums[0] == 0, 0.0, (squares / count).sqrt())


def scale_of(targets: torch.Tensor, comm: Communicator) -> Scale:
    """The Scale of the training nodes' targets (m_p, T) on all ranks. Collective."""
    mean, deviation = spread(targets, comm)
    return Scale(mean, torch.where(deviation > 0, deviation, 1.0))


class Regression(LabelTask):
    """A LabelTask. Labels: float (n_p, T), NaN where they are not known."""

    name, said, outputs = "regression", "real numbers per node", "targets"
    losses = tuple(_LOSSES)
    metrics: ClassVar[dict[str, Metric]] = {
        "rmse": Metric(rmse, lower=True),
        "mae": Metric(mae, lower=True),
        "r2": Metric(r2),
    }

    def scale(self, on: Setting, learns: bool) -> Scale | None:
        """Where nothing is learned a checkpoint brings its numbers."""
        if on.config.task.target_scale == "none":
            return None
        local = on.local
        known = scale_of(local.labels[local.mask("train")], on.comm) if learns else None
        scale = Scale.blank(local.num_classes) if known is None else known
        on.model.add_module(TARGETS, scale)
        return scale

    def weight(self, labels: torch.Tensor) -> int:
        return int((labels == labels).sum())

    def targets(self, labels: torch.Tensor, scale: Scale | None) -> torch.Tensor:
        return labels if scale is None else scale.standardise(labels)

    def loss(
        self, outputs: torch.Tensor, rows: torch.Tensor | None, targets: torch.Tensor, name: str, arena: Arena
    ) -> torch.Tensor:
        selected = outputs if rows is None else outputs.index_select(0, rows)
        if selected.dtype not in (torch.float32, torch.float64):
            selected = selected.float()
        known = targets == targets
        wanted = torch.where(known, targets, 0.0).to(selected.dtype)
        return _LOSSES[name](torch.where(known, selected, 0.0), wanted, reduction="sum")

    def predict(self, outputs: torch.Tensor) -> torch.Tensor:
        return outputs.double()

    def columns(self, outputs: int, names: Sequence[str] = ()) -> list[str]:
        return ["value"] if outputs == 1 else [f"value_{target}" for target in names or range(outputs)]
