"""Arrays that a reader makes: in memory if they are a small part of it, else in files of the scratch directory."""

import hashlib
import math
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike

from partition_tools.workspace.scratch import Scratch

# What is larger than this part of the memory is mapped.
PART = 16


def is_large(num_bytes: int, scratch: Scratch) -> bool:
    """Whether an array of this size is too large to be held in addition to others."""
    return num_bytes > scratch.memory // PART


def filled(
    scratch: Scratch | None,
    name: str,
    shape: tuple[int, ...],
    dtype: DTypeLike,
    fill: Callable[[np.ndarray], object],
) -> np.ndarray:
    """An array that is zero where `fill`(array) leaves it so. A large one is mapped. Without `scratch` it is in
    memory.
    """
    if scratch is None or not is_large(math.prod(shape) * np.dtype(dtype).itemsize, scratch):
        array = np.zeros(shape, dtype)
        fill(array)
        return array
    with scratch.array(name, shape, dtype) as array:
        fill(array)
    return scratch.load(name)


def key_of(path: Path) -> str:
    """A name in the scratch directory for arrays of an input file."""
    return f"{path.name.split('.')[0]}-{hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:12]}"
