"""Differences between two measurements, and the differences that rounding allows."""

import math
from collections.abc import Mapping

import torch

from hpcgnn.extras.certify.measuring import CertifiedRun

#: A sum in another order errs as much as one in another precision, up to a small factor.
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

    Outside float64 only the first step has limits. Later, the sign of a number that is 0 to rounding turns a ReLU, and
    from there on two curves part; that is no fault. The gradients of the first step may have such a sign.
    """
    if rounding is None:
        ties = {f"{split} {first.config.run.metric}": TIES / max(1, count) for split, count in first.counted.items()}
        return dict.fromkeys(differences(first, first), LIMIT_FP64) | ties
    eps = UNITS[first.config.run.precision]
    return {f"{LOSS} 1": min(max(LEAST * eps, FACTOR * rounding[f"{LOSS} 1"]), math.sqrt(eps)), FIRST: math.sqrt(eps)}


def failed(found: Mapping[str, float], allowed: Mapping[str, float]) -> str | None:
    """The first quantity whose difference is more than rounding, or None."""
    return next((name for name, limit in allowed.items() if not found[name] <= limit), None)


def of_losses(found: Mapping[str, float]) -> float:
    """The largest difference of the losses."""
    return max(value for name, value in found.items() if name.startswith(LOSS))


def _relative(one: float, other: float) -> float:
    return 0.0 if one == other else abs(one - other) / max(abs(one), abs(other))


def _apart(one: torch.Tensor, other: torch.Tensor) -> float:
    """The norm of the difference by the norm."""
    norm, apart = float(other.norm()), float((one - other).norm())
    return 0.0 if apart == 0 else apart / norm if norm else math.inf
