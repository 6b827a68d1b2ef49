"""Counts by class over all ranks, and what follows from them: ratios of sums in integers, never means of means.

The counts of classes or labels are int64 (3, C): right predictions, all predictions, and nodes that have the class.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch


def ratio(part: torch.Tensor, whole: torch.Tensor) -> float:
    """part / whole, NaN where there is nothing."""
    return float(part) / float(whole) if whole else math.nan


def mean_ratio(parts: torch.Tensor, wholes: torch.Tensor) -> float:
    """The mean of part / whole, without those whose whole is 0; NaN if all are."""
    there = wholes > 0
    return float((parts[there].double() / wholes[there]).mean())


def macro_f1_of(counts: torch.Tensor) -> float:
    """The mean F1 of the classes that some node has or is predicted to have. counts: of all ranks."""
    right, predicted, support = counts
    return mean_ratio(2 * right, predicted + support)


def rows_by_class(counts: torch.Tensor, names: Sequence[str]) -> list[dict[str, Any]]:
    """A row of a table for each class; NaN for what is not defined. counts: of all ranks; names: of the classes, or
    empty.
    """
    return [
        {
            "class": number,
            **({"name": names[number]} if names else {}),
            "support": int(support),
            "predicted": int(predicted),
            "precision": ratio(right, predicted),
            "recall": ratio(right, support),
            "f1": ratio(2 * right, predicted + support),
        }
        for number, (right, predicted, support) in enumerate(counts.T)
    ]
