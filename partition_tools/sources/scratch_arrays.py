"""Arrays that a reader makes: in memory if they are small beside it, else in files of the scratch directory."""

import contextlib
import hashlib
import math
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from partition_tools.external.scratch import Scratch

# What is larger than this part of the memory is mapped.
PART = 16
# Room for the header of a .npy file, whatever the shape.
HEADER = 128


def is_large(num_bytes: int, scratch: Scratch) -> bool:
    """Whether so many bytes are too many to be held beside others."""
    return num_bytes > scratch.memory // PART


def filled(
    scratch: Scratch,
    name: str,
    shape: tuple[int, ...],
    dtype: np.typing.DTypeLike,
    fill: Callable[[np.ndarray], object],
) -> np.ndarray:
    """An array that is zero where `fill`(array) leaves it so. A large one is mapped, and not filled again if it is
    finished.
    """
    if not is_large(math.prod(shape) * np.dtype(dtype).itemsize, scratch):
        array = np.zeros(shape, dtype)
        fill(array)
        return array
    if not scratch.done(name):
        with scratch.array(name, shape, dtype) as array:
            fill(array)
    return scratch.load(name)


@contextlib.contextmanager
def growing(
    scratch: Scratch, name: str, dtype: np.typing.DTypeLike, width: int | None = None
) -> Iterator[Callable[[np.ndarray], None]]:
    """Yield a function that appends rows to the array `name` of the scratch directory, which is finished when the body
    succeeds. width: of the rows of a 2-D array; None for a vector.
    """
    count, dtype = 0, np.dtype(dtype)
    with scratch.writing(name) as part, open(part, "wb") as file:
        file.write(bytes(HEADER))

        def append(rows: np.ndarray) -> None:
            nonlocal count
            file.write(np.ascontiguousarray(rows, dtype).data)
            count += len(rows)

        yield append
        shape = (count,) if width is None else (count, width)
        text = str({"descr": dtype.str, "fortran_order": False, "shape": shape}).encode()
        size = HEADER - 10
        file.seek(0)
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", size) + text.ljust(size - 1) + b"\n")


def key_of(path: Path) -> str:
    """A name in the scratch directory for what is made of an input file."""
    return f"{path.name.split('.')[0]}-{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12]}"
