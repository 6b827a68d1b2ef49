"""Cross-entropy of some rows and its gradient, in one pass over them: torch takes five, and memory for them."""

import torch

from .interface import SUMMED_ROWS
from .kernel import Arguments, kernel


def _partial(a: Arguments) -> torch.Tensor:
    return torch.empty(-(-len(a.labels) // SUMMED_ROWS), dtype=torch.float64)


@kernel(
    "hg_cross_entropy",
    {
        "gradient": "optional written type of logits (num_rows, width)",
        "logits": "float as x (num_rows, width)",
        "rows": "optional int64 [num]",
        "labels": "int64 [num]",
        "total": "float64 [one]",
    },
    without=(("rows", "num", "num_rows", "labels"),),
    scratch={"partial": _partial},
)
def _cross_entropy(a: Arguments) -> int:
    taken = torch.arange(len(a.labels)) if a.rows is None else a.rows
    bad = (taken < 0) | (taken >= len(a.logits)) | (a.labels < 0) | (a.labels >= a.logits.shape[1])
    if bad.any():
        return int(bad.nonzero()[0])
    log_p, label = torch.log_softmax(a.logits[taken], 1), a.labels.unsqueeze(1)
    if a.gradient is not None:
        p = log_p.exp()
        a.gradient[taken] = p.scatter_add_(1, label, p.new_full(label.shape, -1))
    a.total[0] = -log_p.gather(1, label).sum(dtype=torch.float64)
    return -1


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
    total = torch.zeros(1, dtype=torch.float64)
    wrong = _cross_entropy(gradient, logits, rows, labels, total)
    if wrong >= 0:
        row = wrong if rows is None else int(rows[wrong])
        places = f"row {row} in [0, {logits.shape[0]}) and label {int(labels[wrong])} in [0, {logits.shape[1]})"
        raise ValueError(f"labels[{wrong}]: expected {places}")
    return total.item()
