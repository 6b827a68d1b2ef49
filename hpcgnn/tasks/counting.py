"""Ratios of counts over all ranks: sums in integers, never means of means."""

import torch


def ratio(part: torch.Tensor, whole: torch.Tensor) -> float:
    """part / whole, NaN where there is nothing."""
    return float(part) / float(whole) if whole else float("nan")
