"""Numbers in bfloat16 in a graph file: a floating-point type of HDF5's own, which every reader widens to float32.

numpy has no such type. Arrays of these numbers are float32, or uint16 with their bits.
"""

from typing import Any

import h5py
import numpy as np

#: Its name, as torch has it.
NAME = "bfloat16"


def _described() -> Any:
    kind = h5py.h5t.IEEE_F32LE.copy()
    kind.set_fields(15, 7, 8, 0, 7)  # sign, exponent, its bits, fraction, its bits
    kind.set_precision(16)
    kind.set_size(2)
    kind.set_ebias(127)
    return kind


def stored_type() -> h5py.Datatype:
    """The type of a dataset of such numbers."""
    return h5py.Datatype(_described())


def itemsize(dtype: Any) -> int:
    """Bytes of a number of this type: numpy's, or `stored_type()`."""
    return dtype.id.get_size() if isinstance(dtype, h5py.Datatype) else np.dtype(dtype).itemsize


def is_bfloat16(dataset: Any) -> bool:
    """Whether an h5py dataset has such numbers, which h5py shows as float32."""
    kind = dataset.id.get_type()
    return bool(kind.get_size() == 2 and kind.equal(_described()))


def bits_of(rows: np.ndarray) -> np.ndarray:
    """uint16, the bits of finite numbers rounded to the nearest, ties to even."""
    wide = np.ascontiguousarray(rows, np.float32).view(np.uint32)
    return ((wide + (0x7FFF + ((wide >> 16) & 1))) >> 16).astype(np.uint16)


def widened(bits: np.ndarray) -> np.ndarray:
    """float32 numbers of these bits (uint16)."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def rounded(rows: np.ndarray) -> np.ndarray:
    """float32, each the nearest number of bfloat16; NaN and infinity stay."""
    rows = np.asarray(rows, np.float32)
    return np.where(np.isfinite(rows), widened(bits_of(rows)), rows)


def read_bits(dataset: Any, start: int, stop: int) -> np.ndarray:
    """uint16, the bits of rows start … stop - 1. HDF5 itself converts such numbers many times slower."""
    bits = np.empty((stop - start, *dataset.shape[1:]), np.uint16)
    if bits.size:
        wanted = dataset.id.get_space()
        wanted.select_hyperslab((start, *(0,) * (bits.ndim - 1)), bits.shape)
        dataset.id.read(h5py.h5s.create_simple(bits.shape), wanted, bits, dataset.id.get_type())
    return bits


def write_rows(dataset: Any, start: int, rows: np.ndarray) -> None:
    """Write float32 rows at and after `start`, rounded."""
    bits = bits_of(rows)
    if bits.size:
        wanted = dataset.id.get_space()
        wanted.select_hyperslab((start, *(0,) * (bits.ndim - 1)), bits.shape)
        dataset.id.write(h5py.h5s.create_simple(bits.shape), wanted, bits, dataset.id.get_type())
