"""Numbers of two bytes and one: bfloat16, and codes of int8 with a factor for each column.

bfloat16 is a floating-point type of HDF5's own, which every reader widens to float32. numpy has no such type. Arrays of
these numbers are float32, or uint16 with their bits.

Codes are whole numbers, and each column has a power of two that they are multiplied by. A column has a unit, a row has
none: so factors are of columns. They also leave every sum over neighbours, and go into the first layer's weights.
Powers of two do that without rounding, so codes give the bits of the numbers that they stand for.
"""

from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

from hpcgnn.errors import FormatError

if TYPE_CHECKING:
    from hpcgnn.graphfile.storage import GraphFile

#: Its name, as torch has it.
BFLOAT16 = "bfloat16"
#: The dataset of the factors, float32 (F,), where there are any.
SCALES = "nodes/features_scale"
#: The largest code. The least is its negative.
LARGEST = 127


def _described() -> Any:
    kind = h5py.h5t.IEEE_F32LE.copy()
    kind.set_fields(15, 7, 8, 0, 7)  # sign, exponent, its bits, fraction, its bits
    kind.set_precision(16)
    kind.set_size(2)
    kind.set_ebias(127)
    return kind


def stored_type() -> h5py.Datatype:
    """The type of a dataset of bfloat16."""
    return h5py.Datatype(_described())


def itemsize(dtype: Any) -> int:
    """Bytes of a number of this type: numpy's, or `stored_type()`."""
    return dtype.id.get_size() if isinstance(dtype, h5py.Datatype) else np.dtype(dtype).itemsize


def is_bfloat16(dataset: Any) -> bool:
    """Whether an h5py dataset has such numbers, which h5py shows as float32."""
    kind = dataset.id.get_type()
    return bool(kind.get_size() == 2 and kind.equal(_described()))


def _bits_of(rows: np.ndarray) -> np.ndarray:
    """uint16, the bits of finite numbers rounded to the nearest, ties to even."""
    wide = np.ascontiguousarray(rows, np.float32).view(np.uint32)
    return ((wide + (0x7FFF + ((wide >> 16) & 1))) >> 16).astype(np.uint16)


def widened(bits: np.ndarray) -> np.ndarray:
    """float32 numbers of these bits (uint16)."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def rounded(rows: np.ndarray) -> np.ndarray:
    """float32, each the nearest number of bfloat16; NaN and infinity stay."""
    rows = np.asarray(rows, np.float32)
    return np.where(np.isfinite(rows), widened(_bits_of(rows)), rows)


def _move(dataset: Any, move: Any, start: int, bits: np.ndarray) -> None:
    """move(memory, file, bits, type), a method of h5py: at and after row `start`. HDF5 itself converts such numbers
    many times slower.
    """
    if bits.size:
        wanted = dataset.id.get_space()
        wanted.select_hyperslab((start, *(0,) * (bits.ndim - 1)), bits.shape)
        move(h5py.h5s.create_simple(bits.shape), wanted, bits, dataset.id.get_type())


def read_bits(dataset: Any, start: int, stop: int) -> np.ndarray:
    """uint16, the bits of rows start … stop - 1."""
    bits = np.empty((stop - start, *dataset.shape[1:]), np.uint16)
    _move(dataset, dataset.id.read, start, bits)
    return bits


def write_rounded(dataset: Any, start: int, rows: np.ndarray) -> None:
    """Write float32 rows at and after `start`, rounded."""
    _move(dataset, dataset.id.write, start, _bits_of(rows))


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
