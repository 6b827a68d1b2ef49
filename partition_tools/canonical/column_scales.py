"""Scales of feature columns: standardising by the training nodes, and a warning where columns differ too much."""

from dataclasses import dataclass

import numpy as np

from hpcgnn.errors import GraphError
from hpcgnn.graphfile.schema import Rows
from hpcgnn.listing import ranges
from partition_tools.canonical.rows import numbered, slabs
from partition_tools.graph.raw import DataError

# A deviation below this share of the mean's size is rounding: the column counts as constant.
CONSTANT = 1e-9
# Rows that the warning looks at, evenly spread over the graph.
SAMPLED = 1 << 16
# Columns this many times larger than the median one are reported.
FAR_APART = 100.0


@dataclass(frozen=True)
class Standard:
    """Mean and deviation of each column, float64 (F,); the deviation of a constant column is 1."""

    mean: np.ndarray
    deviation: np.ndarray

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """Rows (m, F) of any type in units of the deviation from the mean: float64."""
        return (rows.astype(np.float64) - self.mean) / self.deviation


def standard_of(features: Rows, train: np.ndarray) -> Standard:
    """The Standard of the training nodes, in one pass (Chan, Golub and LeVeque, 1979).

    Args:
        features: array-like (n, F).
        train: bool (n,).

    Raises:
        GraphError: without training nodes, or if one of them has a NaN or an infinite feature.
    """
    if not train.any():
        raise GraphError(
            "--standardize: expected training nodes, whose mean and deviation are taken, and the graph has none; give "
            "it a split (--train 0.5), or leave --standardize out"
        )
    count, mean, squares = 0, np.zeros(features.shape[1]), np.zeros(features.shape[1])
    for start, slab in numbered(features):
        chosen = train[start : start + len(slab)]
        rows = np.asarray(slab)[chosen].astype(np.float64)
        if not len(rows):
            continue
        finite = np.isfinite(rows)
        if not finite.all():
            row, column = divmod(int(np.argmin(finite)), rows.shape[1])
            node = start + int(np.flatnonzero(chosen)[row])
            raise DataError(node, "has a feature that is NaN or infinite; mend or remove it first", "features", column)
        own = rows.mean(axis=0)
        difference, total = own - mean, count + len(rows)
        squares += ((rows - own) ** 2).sum(axis=0) + difference**2 * count * len(rows) / total
        mean += difference * len(rows) / total
        count = total
    deviation = np.sqrt(squares / count)
    constant = deviation <= CONSTANT * np.abs(mean)
    return Standard(mean, np.where(constant, 1.0, deviation))


def scale_warning(features: Rows) -> str:
    """A warning about columns that are far larger than others, or ''. features: array-like (n, F) of finite numbers.

    The size of a column is the root mean square of its entries that are not 0. So rare categories are as large as
    frequent ones.
    """
    step = max(1, features.shape[0] // SAMPLED)
    squares, counts = np.zeros(features.shape[1]), np.zeros(features.shape[1])
    for slab in slabs(features):
        rows = np.asarray(slab)[::step].astype(np.float64)
        squares += (rows**2).sum(axis=0)
        counts += (rows != 0).sum(axis=0)
    sizes = np.sqrt(squares / np.maximum(counts, 1))
    usual = float(np.median(sizes[counts > 0])) if counts.any() else 0.0
    large = np.flatnonzero(sizes > FAR_APART * usual) if usual else np.zeros(0, np.int64)
    if not len(large):
        return ""
    factor = float(sizes.max()) / usual
    return (
        f"{len(large)} of {len(sizes)} feature columns are over {FAR_APART:g} times as large as the median column, up "
        f"to {factor:,.0f} times (from 0: {ranges(large.tolist())}); models learn slowly from such features: "
        "--standardize scales columns by the training nodes' mean and deviation"
    )
