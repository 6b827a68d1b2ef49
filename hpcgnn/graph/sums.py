"""Divisors of weighted edges: the sums of their weights, and the rule for a zero sum.

One rule for all means (sage by node, rgcn by node and relation): Σ w x / Σ w wherever Σ w is not 0, also for negative
sums. Where it is 0 the mean is 0, as for a node without edges. Weights are float32. A sum of at most 2^-23 of the sum
of absolute values consists of rounding (0.1 + 0.2 - 0.3), and counts as 0. Symmetric normalisation takes roots, so sums
below 0 are an error there (app/graph_checks.py).
"""

import numpy as np

ROUNDING = 2.0**-23


def weight_sums(rows: np.ndarray, weight: np.ndarray | None, num_rows: int) -> np.ndarray:
    """float64 (num_rows,): Σ w by row, 0.0 where weights cancel. rows: int (E,); weight: float (E,), or None for
    ones.
    """
    total = np.bincount(rows, weight, minlength=num_rows).astype(np.float64)
    if weight is not None and len(weight) and weight.min() < 0:
        total[np.abs(total) <= ROUNDING * np.bincount(rows, np.abs(weight), minlength=num_rows)] = 0.0
    return total
