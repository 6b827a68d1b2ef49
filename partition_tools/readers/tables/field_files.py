"""Arrays of a simulation on disk, read by blocks: .npy, HDF5 and NetCDF-4, NetCDF-3, and zarr.

None of them is ever whole in memory. Numbers that stand for "missing" become NaN, which is refused when it is written.
Packed numbers (`scale_factor`) are refused: the numbers in the file are not those of the field.
"""

import contextlib
import importlib
import mmap
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from hpcgnn.errors import FormatError
from hpcgnn.graphfile.hdf5 import opened
from partition_tools.readers.tables.tables import map_npy

SPELLINGS = ".npy, HDF5 or NetCDF as FILE:DATASET, or a folder of zarr"
_HDF5, _NETCDF = b"\x89HDF", b"CDF"
_MISSING, _PACKED = ("_FillValue", "missing_value"), ("scale_factor", "add_offset")
# What the libraries say of a file that is damaged.
_DAMAGE = (OSError, RuntimeError, ValueError, TypeError, KeyError, IndexError, AttributeError)
#: The numbers of at most three bytes that a float32 has without rounding.
_NARROW = "b1", "i1", "u1", "i2", "u2", "f2", "f4"


class BlockArray:
    """An array that is read when it is sliced, as float32 or float64, with NaN for what is missing.

    Args:
        array: an array of numbers, of any library.
        said: what the user calls it.
        attributes: those that the file has for it.
        mapped: where it is mapped; pages that were read are given back, as they would count as memory of the process.
    """

    def __init__(self, array: Any, said: str, attributes: Mapping[str, Any], mapped: mmap.mmap | None = None) -> None:
        kind = np.dtype(array.dtype)
        if kind.kind not in "iufb":
            raise FormatError(f"{said} holds {kind}, expected numbers")
        if packed := [name for name in _PACKED if name in attributes]:
            raise FormatError(
                f"{said} is packed (attribute {packed[0]}), expected the numbers themselves; unpack it first, as by "
                "`ncpdq --unpack IN.nc OUT.nc`"
            )
        self._array, self.said, self.shape, self._mapped = array, said, tuple(array.shape), mapped
        self.dtype = np.dtype(np.float32 if kind.newbyteorder("=") in map(np.dtype, _NARROW) else np.float64)
        self.chunks = getattr(array, "chunks", None)
        values = [np.ravel(attributes[name]) for name in _MISSING if name in attributes]
        self._missing = np.concatenate(values).astype(kind) if values else None

    def __getitem__(self, place: Any) -> np.ndarray:
        try:
            found = np.asarray(self._array[place])
        except _DAMAGE as error:
            raise FormatError(f"{self.said} cannot be read: {error}; copy or write the file again") from error
        values = found.astype(self.dtype)
        if self._missing is not None:
            values[np.isin(found, self._missing)] = np.nan
        if self._mapped is not None:
            self._mapped.madvise(mmap.MADV_DONTNEED)
        return values


@contextlib.contextmanager
def open_array(source: Any, wanted: str = "") -> Iterator[BlockArray]:
    """Open FILE or FILE:DATASET, or take an array. wanted: the dataset of a FILE that says none and has several.

    Raises FormatError naming the file, and the datasets that it has.
    """
    if not isinstance(source, str | Path):
        yield BlockArray(np.asarray(source), f"the array of {wanted}", {})
        return
    path, name = _parts(os.fspath(source))
    with contextlib.ExitStack() as stack:
        start, mapped = b"" if path.is_dir() else _start(path), None
        if path.is_dir():
            array, attributes, said = _member(*_opened_zarr(path), path, name, wanted)
        elif start.startswith(_HDF5):
            try:
                file = stack.enter_context(opened(path))
            except OSError as error:
                raise FormatError(f"{path} is not a readable HDF5 file: {error}; copy it again") from error
            array, attributes, said = _member(file, _names_in(file), path, name, wanted)
        elif start.startswith(_NETCDF):
            file = stack.enter_context(_netcdf(path))
            variables, mapped = file.variables, vars(file).get("_mm")
            array, attributes, said = _member(variables, lambda: list(variables), path, name, wanted)
            array, attributes = array.data, vars(array)["_attributes"]
        else:
            if name or path.suffix != ".npy":
                raise FormatError(f"{source} is in no format that is read; expected {SPELLINGS}")
            array, attributes, said = map_npy(path), {}, str(path)
            mapped = vars(array).get("_mmap")
        yield BlockArray(array, said, attributes, mapped)


def _parts(text: str) -> tuple[Path, str]:
    """(file, dataset or '') of FILE or FILE:DATASET."""
    file, _, name = text.rpartition(":")
    if Path(text).exists() or not file or not Path(file).exists():
        return Path(text), ""
    return Path(file), name


def _start(path: Path) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(4)
    except OSError as error:
        raise FormatError(f"cannot read {path}: {error.strerror}; expected {SPELLINGS}") from error


def _names_in(file: Any) -> Callable[[], list[str]]:
    """A function that lists the datasets of a group of h5py."""

    def names() -> list[str]:
        found: list[str] = []
        file.visititems(lambda name, node: found.append(name) if hasattr(node, "shape") else None)
        return found

    return names


def _member(
    group: Any, names: Callable[[], list[str]], path: Path, name: str, wanted: str
) -> tuple[Any, Mapping[str, Any], str]:
    """(array, its attributes, what to call it) of a group that has several, or that is an array itself."""
    if hasattr(group, "shape"):
        return group, group.attrs, str(path)
    try:
        there = names()
        name = name or (there[0] if len(there) == 1 else wanted)
        array = group.get(name)
    except _DAMAGE as error:
        raise FormatError(f"{path} cannot be read: {error}; copy it again") from error
    if not hasattr(array, "shape"):
        few = ", ".join(sorted(there)[:12]) + (", ..." if len(there) > 12 else "")
        raise FormatError(f"{path} has no dataset {name!r}; it has {few or 'none'}: say FILE:DATASET")
    return array, getattr(array, "attrs", {}), f"{path}:{name}"


@contextlib.contextmanager
def _netcdf(path: Path) -> Iterator[Any]:
    """A NetCDF-3 file, its data mapped."""
    try:
        file = scipy.io.netcdf_file(path, "r", mmap=True)
    except _DAMAGE as error:
        raise FormatError(f"{path} is not a readable NetCDF-3 file: {error}; copy it again") from error
    try:
        yield file
    finally:
        with warnings.catch_warnings():  # mapped arrays may outlive it
            warnings.simplefilter("ignore", RuntimeWarning)
            file.close()


def _opened_zarr(path: Path) -> tuple[Any, Callable[[], list[str]]]:
    """(array or group, a function that lists the arrays of the group)."""
    try:
        zarr = importlib.import_module("zarr")
    except ImportError as error:
        raise FormatError(
            f"{path} is a folder, and reading zarr needs the package: pip install zarr; else expected {SPELLINGS}"
        ) from error
    try:
        found = zarr.open(str(path), mode="r")
    except Exception as error:  # of any of its stores
        raise FormatError(f"{path} is no array or group of zarr: {error}; expected {SPELLINGS}") from error
    return found, lambda: [name for name, _ in found.arrays()]
