"""Real numbers to predict (regression) on their way into the file: one column or several, NaN for unknown ones."""

import numpy as np

from partition_tools.canonical.labels import no_label_in_split, numbers_of_nodes
from partition_tools.graph.raw import DataError


def canonical_targets(labels: np.ndarray | None, n: int, split: np.ndarray) -> tuple[np.ndarray, int]:
    """(targets, their number T): float32 or float64 (n,), or (n, T) for several columns.

    labels: (n,) or (n, T) of numbers, kept as float32 if they fit it and otherwise as float64; None: there are no
    targets. Raises GraphError naming the first node with an infinite or too large target, or with none in a split.
    """
    if labels is None:
        return np.full(n, np.nan, np.float32), 0
    labels = numbers_of_nodes(labels, n, "target")
    targets = labels.astype(np.float32 if np.can_cast(labels.dtype, np.float32, "safe") else np.float64)
    most = float(np.sqrt(np.finfo(np.float32).max))
    _refuse(np.isinf(targets), "has an infinite target{}; expected finite numbers, or NaN for none")
    _refuse(
        np.abs(targets) > most,
        f"has a target beyond {most:.1e}{{}}, whose square is infinite in float32; expected smaller numbers: scale the "
        "targets",
    )
    no_label_in_split(~np.isfinite(targets).reshape(n, -1).any(axis=1) & (split > 0), split)
    return targets, 1 if targets.ndim == 1 else targets.shape[1]


def _refuse(wrong: np.ndarray, text: str) -> None:
    """DataError for the first entry of (n,) or (n, T) that is wrong; text: with a place for the number of nodes."""
    if wrong.any():
        node, *column = np.argwhere(wrong)[0].tolist()
        count = np.count_nonzero(wrong.reshape(len(wrong), -1).any(axis=1))
        raise DataError(node, text.format(f" ({count} such nodes)"), "labels", *column)
