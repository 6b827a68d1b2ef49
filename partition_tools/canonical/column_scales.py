"""Standardising feature columns by the training nodes."""

import numpy as np

from hpcgnn.errors import GraphError
from hpcgnn.graphfile.schema import RowReader
from partition_tools.canonical.rows import numbered
from partition_tools.graph.raw import check_finite

# A deviation below this share of the mean's size is rounding: the column counts as constant.
CONSTANT = 1e-9


def mean_and_deviation(features: RowReader, train: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation of each column over the training nodes, float64 (F,), in one pass (Chan, Golub and LeVeque,
    1979). The deviation of a constant column is 1.

    Args:
        features: array-like (n, F).
        train: bool (n,).

    Raises:
        GraphError: without training nodes, or if one of them has a NaN or an infinite feature.
    """
    if not train.any():
        raise GraphError(
            "features.standardize: expected training nodes, for their mean and deviation, and there are none; give "
            "the graph a split (--train 0.5), or leave it out"
        )
    count, mean, squares = 0, np.zeros(features.shape[1]), np.zeros(features.shape[1])
    for start, slab in numbered(features):
        chosen = np.flatnonzero(train[start : start + len(slab)])
        rows = np.asarray(slab)[chosen].astype(np.float64)
        if not len(rows):
            continue
        check_finite(rows, start + chosen)
        own = rows.mean(axis=0)
        difference, total = own - mean, count + len(rows)
        squares += ((rows - own) ** 2).sum(axis=0) + difference**2 * count * len(rows) / total
        mean += difference * len(rows) / total
        count = total
    deviation = np.sqrt(squares / count)
    return mean, np.where(deviation <= CONSTANT * np.abs(mean), 1.0, deviation)
