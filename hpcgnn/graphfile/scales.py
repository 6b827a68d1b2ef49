"""Features in bytes: whole numbers of int8, and for each column the power of two that they are multiplied by.

A column has a unit, a row has none: so factors are of columns. They also leave every sum over neighbours, and go into
the first layer's weights. Powers of two do that without rounding, so codes give the bits of the numbers that they
stand for.
"""

from typing import TYPE_CHECKING

import numpy as np

from hpcgnn.errors import FormatError

if TYPE_CHECKING:
    from hpcgnn.graphfile.storage import GraphFile

#: The dataset of the factors, float32 (F,), where there are any.
SCALES = "nodes/features_scale"
#: The largest code. The least is its negative.
LARGEST = 127


def scales_for(largest: np.ndarray) -> np.ndarray:
    """float32 (F,): the least powers of two with which all numbers up to `largest` (F,), at least 0, have a code."""
    fraction, exponent = np.frexp(np.asarray(largest, np.float64) / LARGEST)
    exponent = np.where(fraction == 0.5, exponent - 1, exponent)
    return np.where(largest > 0, np.ldexp(1.0, np.maximum(exponent, -100)), 1).astype(np.float32)


def codes_of(rows: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """int8, the codes of finite numbers, rounded to the nearest."""
    return np.rint(rows / scales.astype(np.float64)).clip(-LARGEST, LARGEST).astype(np.int8)


def are_scales(found: np.ndarray) -> np.ndarray:
    """bool (F,): which of these can be factors."""
    return np.isfinite(found) & (np.frexp(found)[0] == 0.5)


def read_scales(file: "GraphFile") -> np.ndarray | None:
    """float32 (F,), the factors of an open file's features, or None. FormatError where they are none."""
    if SCALES not in file:
        return None
    found = file.read(SCALES, dtype=np.float32)
    if found.shape != (file.meta.num_features,) or not are_scales(found).all():
        raise FormatError(
            f"{file.path}: {SCALES} must be {file.meta.num_features} powers of two; the file is corrupted, import the "
            "graph again"
        )
    return found
