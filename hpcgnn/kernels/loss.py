"""Cross-entropy of some rows and its gradient, in one pass over them: torch takes five, and memory for them."""

import torch

from . import checks
from .library import kernels

_TYPES = (torch.float32, torch.float64)


def cross_entropy(
    gradient: torch.Tensor | None, logits: torch.Tensor, rows: torch.Tensor | None, labels: torch.Tensor
) -> float:
    """Σ_i -log softmax(logits[rows[i]])[labels[i]], summed in float64. It does not depend on the number of threads.

    Args:
        gradient: None, or (n, C) of logits' dtype, maybe logits itself; these rows, and no others, get the gradient.
        logits: (n, C), float32 or float64, rows contiguous.
        rows: (m,) int64, all different, or None for all rows.
        labels: (m,) int64.

    Raises:
        ValueError: a wrong dtype, shape or layout, or a row or label out of range.
    """
    checks.matrix("logits", logits, _TYPES)
    checks.vector("rows", rows, torch.int64, None, optional=True)
    checks.vector("labels", labels, torch.int64, logits.shape[0] if rows is None else rows.shape[0])
    if gradient is not None:
        checks.matrix("gradient", gradient, (logits.dtype,), *logits.shape)
    total, wrong = kernels().cross_entropy(gradient, logits, rows, labels)
    if gradient is not None:
        checks.written(gradient)
    if wrong >= 0:
        row = wrong if rows is None else int(rows[wrong])
        places = f"row {row} in [0, {logits.shape[0]}) and label {int(labels[wrong])} in [0, {logits.shape[1]})"
        raise ValueError(f"labels[{wrong}]: expected {places}")
    return total
