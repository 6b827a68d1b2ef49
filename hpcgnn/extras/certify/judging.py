"""Differences between two measurements, and the differences that rounding allows."""

import math
from collections.abc import Mapping
from itertools import accumulate

import torch

from hpcgnn.extras.certify.measuring import CertifiedRun

#: A sum in another order errs as much as one in another precision, up to a small factor. Gradients of a first step come
#: to 2.1, gradients and parameters after ten to 8.2 (300 nodes; sage, gcn, gat and gin; six seeds; 2 and 3 ranks).
FACTOR = 10
#: Units of rounding that a quantity may differ by, whatever was measured: a loss is a single number, which may be right
#: by chance.
LEAST = 4
#: All differences of float64.
LIMIT_FP64 = 1e-9
#: Objects that a metric may count otherwise: those whose outputs are equal to rounding.
TIES = 2
#: {precision: its unit of rounding}. mixed: of bf16, in which hidden states are kept and sent.
UNITS = {"fp32": 2.0**-23, "mixed": 2.0**-8}
LOSS, FIRST, LAST = "loss of step", "gradients of the first step", "gradients of the last step"


def differences(one: CertifiedRun, first: CertifiedRun) -> dict[str, float]:
    """{quantity: relative difference}, in the order in which training meets them; for metrics that count, the
    difference itself.
    """
    losses = {
        f"{LOSS} {step}": _relative(a, b) for step, (a, b) in enumerate(zip(one.losses, first.losses, strict=True), 1)
    }
    at_first, at_last = map(_apart, one.gradients, first.gradients)
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
        FIRST: at_first,
        **{name: losses[name] for name in rest},
        LAST: at_last,
        "parameters": _apart(one.parameters, first.parameters),
        **metrics,
    }


def limits(rounding: Mapping[str, float] | None, first: CertifiedRun) -> dict[str, float]:
    """{quantity: the largest difference that rounding allows}. rounding: the differences of the first shape from
    itself in float64; None where it is in float64.

    A later loss may differ as much as an earlier one, and more with the number of steps. No limit is above the root of
    the unit of rounding: a run that rounding has turned to another branch allows nothing.
    """
    names = differences(first, first)
    if rounding is None:
        return dict.fromkeys(names, LIMIT_FP64)
    eps, steps = UNITS[first.config.run.precision], len(first.losses)
    losses = [name for name in names if name.startswith(LOSS)]
    after = dict.fromkeys(names, steps) | {FIRST: 1} | {name: step for step, name in enumerate(losses, 1)}
    largest = dict(rounding) | dict(zip(losses, accumulate((rounding[name] for name in losses), max), strict=True))
    found = {
        name: min(max(LEAST * eps * math.sqrt(after[name]), FACTOR * largest[name]), math.sqrt(eps)) for name in names
    }
    ties = {f"{split} {first.config.run.metric}": TIES / max(1, count) for split, count in first.counted.items()}
    return found | {name: max(found[name], ties[name]) for name in ties}


def failed(found: Mapping[str, float], allowed: Mapping[str, float]) -> str | None:
    """The first quantity whose difference is more than rounding, or None."""
    return next((name for name, value in found.items() if not value <= allowed[name]), None)


def early(name: str) -> bool:
    """Whether a quantity is of the first step, before rounding can have grown."""
    return name in (f"{LOSS} 1", FIRST)


def of_losses(found: Mapping[str, float]) -> float:
    """The largest difference of the losses."""
    return max(value for name, value in found.items() if name.startswith(LOSS))


def _relative(one: float, other: float) -> float:
    return 0.0 if one == other else abs(one - other) / max(abs(one), abs(other))


def _apart(one: torch.Tensor, other: torch.Tensor) -> float:
    """The norm of the difference by the norm."""
    norm, apart = float(other.norm()), float((one - other).norm())
    return 0.0 if apart == 0 else apart / norm if norm else math.inf
