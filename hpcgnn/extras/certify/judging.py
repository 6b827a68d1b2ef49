"""Differences between two measurements, and the differences that rounding allows."""

import math
from collections.abc import Mapping
from itertools import accumulate

import torch

from hpcgnn.extras.certify.measuring import Measured

#: A sum in another order errs as much as one in another precision, up to a small factor.
FACTOR = 10
#: All differences of float64.
LIMIT_FP64 = 1e-9
#: Objects that a metric may count otherwise: those whose outputs are equal to rounding.
TIES = 2
LOSS = "loss of step"


def differences(one: Measured, first: Measured) -> dict[str, float]:
    """{quantity: relative difference}, in the order in which training meets them; for metrics that count, the
    difference itself.
    """
    losses = {
        f"{LOSS} {step}": _relative(a, b) for step, (a, b) in enumerate(zip(one.losses, first.losses, strict=True), 1)
    }
    vectors = {
        f"gradients of the {name} step": _apart(a, b)
        for name, a, b in zip(("first", "last"), one.gradients, first.gradients, strict=True)
    }
    begin, *rest = losses
    metrics = {
        f"{split} {one.config.run.metric}": abs(value - first.metrics[split])
        if one.counted
        else _relative(value, first.metrics[split])
        for split, value in one.metrics.items()
        if split in first.metrics
    }
    return {
        begin: losses[begin],
        "gradients of the first step": vectors["gradients of the first step"],
        **{name: losses[name] for name in rest},
        **vectors,
        "parameters": _apart(one.parameters, first.parameters),
        **metrics,
    }


def limits(rounding: Mapping[str, float] | None, first: Measured) -> dict[str, float]:
    """{quantity: the largest difference that rounding allows}. rounding: the differences of the first shape from
    itself in float64; None where it is in float64.

    A later loss may differ as much as an earlier one, and more with the number of steps.
    """
    names = differences(first, first)
    if rounding is None:
        return dict.fromkeys(names, LIMIT_FP64)
    eps, steps = torch.finfo(torch.float32).eps, len(first.losses)
    least = {name: FACTOR * eps * math.sqrt(steps) for name in names}
    least["gradients of the first step"] = FACTOR * eps
    losses = [name for name in names if name.startswith(LOSS)]
    least |= {name: FACTOR * eps * math.sqrt(step) for step, name in enumerate(losses, 1)}
    least |= {f"{split} {first.config.run.metric}": TIES / max(1, count) for split, count in first.counted.items()}
    largest = dict(rounding) | dict(zip(losses, accumulate((rounding[name] for name in losses), max), strict=True))
    return {name: max(least[name], FACTOR * largest[name]) for name in names}


def failed(found: Mapping[str, float], allowed: Mapping[str, float]) -> str | None:
    """The first quantity whose difference is more than rounding, or None."""
    return next((name for name, value in found.items() if not value <= allowed[name]), None)


def of_losses(found: Mapping[str, float]) -> float:
    """The largest difference of the losses."""
    return max(value for name, value in found.items() if name.startswith(LOSS))


def _relative(one: float, other: float) -> float:
    return 0.0 if one == other else abs(one - other) / max(abs(one), abs(other))


def _apart(one: torch.Tensor, other: torch.Tensor) -> float:
    """The norm of the difference by the norm."""
    norm, apart = float(other.norm()), float((one - other).norm())
    return 0.0 if apart == 0 else apart / norm if norm else math.inf
