"""Real numbers to predict (regression) on their way into the file: one column or several, NaN for unknown ones."""

import numpy as np

from hpcgnn.errors import GraphError
from partition_tools.canonical.labels import no_label_in_split, numbers_of_nodes


def canonical_targets(labels: np.ndarray | None, n: int, split: np.ndarray) -> tuple[np.ndarray, int]:
    """(targets, their number T): float32 or float64 (n,), or (n, T) for several columns.

    labels: (n,) or (n, T) of numbers, kept as float32 if they fit it and otherwise as float64; None: there are no
    targets. Raises GraphError naming the first node with an infinite or too large target, or with none in a split.
    """
    if labels is None:
        return np.full(n, np.nan, np.float32), 0
    labels = numbers_of_nodes(labels, n, "target")
    targets = labels.astype(np.float32 if np.can_cast(labels.dtype, np.float32, "safe") else np.float64)
    infinite = np.isinf(targets).reshape(n, -1).any(axis=1)
    if infinite.any():
        raise GraphError(
            f"node {int(np.argmax(infinite))} has an infinite target ({np.count_nonzero(infinite)} such nodes); "
            "expected finite numbers, or NaN for none"
        )
    most = float(np.sqrt(np.finfo(np.float32).max))
    large = (np.abs(targets) > most).reshape(n, -1).any(axis=1)
    if large.any():
        raise GraphError(
            f"node {int(np.argmax(large))} has a target beyond {most:.1e} ({np.count_nonzero(large)} such nodes), "
            "whose square is infinite in float32; expected smaller numbers: scale the targets"
        )
    no_label_in_split(~np.isfinite(targets).reshape(n, -1).any(axis=1) & (split > 0), split)
    return targets, 1 if targets.ndim == 1 else targets.shape[1]
