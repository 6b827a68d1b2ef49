"""HDF5 files of columns: one that is written slab by slab, complete under its name or absent.

It also has columns written past HDF5, since several processes may write their rows of one byte array at once.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from hpcgnn.graphfile.attributes import write_attributes
from hpcgnn.graphfile.chunks import create_dataset
from hpcgnn.graphfile.storage import replacing
from hpcgnn.graphfile.writing import written_file


def text_type(longest: int) -> np.dtype:
    """Return the type of a column of texts with at most `longest` bytes of UTF-8."""
    return np.dtype(h5py.string_dtype("utf-8", max(1, longest)))


def as_texts(words: Sequence[str], dtype: np.dtype) -> np.ndarray:
    """Words as a column of `text_type`."""
    return np.array([word.encode() for word in words], dtype)


@contextlib.contextmanager
def written_columns(
    path: str | Path, columns: Mapping[str, tuple[tuple[int, ...], np.dtype]], **attributes: Any
) -> Iterator[Callable[[int, Mapping[str, np.ndarray]], None]]:
    """Yield put(first row, {name: rows}), which writes rows of columns {name: (shape, dtype)} of a new file.

    attributes: of the root, numbers and texts. Raises FormatError where the file cannot be written.
    """
    with replacing(path) as temporary, written_file(temporary) as (file, check):
        write_attributes(file, **attributes)
        datasets = {name: create_dataset(file, name, shape, dtype) for name, (shape, dtype) in columns.items()}

        def put(first: int, rows: Mapping[str, np.ndarray]) -> None:
            for name, array in rows.items():
                datasets[name][first : first + len(array)] = array
                check()

        yield put


def reserve(file: Any, name: str, shape: tuple[int, ...], dtype: np.dtype) -> int:
    """Make a dataset of an open h5py.File whose elements lie one after another, as in numpy, and are written later.
    Returns the place in the file of the first byte.
    """
    plan = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plan.set_obj_track_times(False)
    plan.set_layout(h5py.h5d.CONTIGUOUS)
    plan.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    plan.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    kind, space = h5py.h5t.py_create(dtype, logical=True), h5py.h5s.create_simple(shape)
    return h5py.h5d.create(file.id, name.encode(), kind, space, plan).get_offset() or 0  # None of an empty one
