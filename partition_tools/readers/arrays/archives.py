"""Named arrays on disk, in an .npz archive or a folder of .npy files. Large ones are never in memory.

An array that an archive stores as it is can be mapped where it lies, and so can a .npy file. One that is deflated goes
through a file of the scratch directory, a block at a time. Small ones are read. Pickled arrays are refused: loading one
runs code of the file's author.
"""

import contextlib
import math
import pickle
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np

from hpcgnn.errors import FormatError
from partition_tools.readers.tables.refused import check_file
from partition_tools.readers.tables.tables import load_npy
from partition_tools.workspace.scratch import Scratch
from partition_tools.workspace.scratch_arrays import PART, is_large

BLOCK = 1 << 22
# What numpy, zipfile and zlib say of an archive or a header that is damaged.
_DAMAGE = (
    ValueError,
    TypeError,
    EOFError,
    SyntaxError,
    NotImplementedError,
    RuntimeError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
    tokenize.TokenError,
)


class Arrays(Protocol):
    """Arrays by their names. files: the names. path: of the archive or folder."""

    path: Path
    files: list[str]

    def array(self, name: str) -> np.ndarray | None:
        """One array, or None if it is not there. FormatError for pickled and damaged ones."""


@contextlib.contextmanager
def open_arrays(path: Path, scratch: Scratch) -> Iterator[Arrays]:
    """The arrays of an .npz archive or a folder of .npy files, for a `with` statement. FormatError if it is neither."""
    if path.is_dir():
        yield _Folder(path, scratch)
        return
    with open(path, "rb") as handle:
        try:
            archive = np.load(handle, allow_pickle=False)
        except (*_DAMAGE, OSError, pickle.UnpicklingError) as error:
            raise FormatError(f"{path} is not a readable .npz archive: {error}") from error
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise FormatError(f"{path} is a single array, expected an .npz archive of several")
        with archive:
            yield _Archive(path, archive, scratch)


def map_npy(path: Path, scratch: Scratch) -> np.ndarray:
    """The array of a .npy file, mapped and read-only if it is large. FormatError for one that is damaged or pickled."""
    return load_npy(path, scratch.memory // PART)


class _Folder:
    def __init__(self, path: Path, scratch: Scratch) -> None:
        self.path, self.scratch = path, scratch
        for file in path.glob("*.npy"):
            check_file(file)
        self.files = sorted(file.stem for file in path.glob("*.npy"))

    def array(self, name: str) -> np.ndarray | None:
        file = self.path / f"{name}.npy"
        return map_npy(file, self.scratch) if file.is_file() else None


class _Archive:
    def __init__(self, path: Path, archive: Any, scratch: Scratch) -> None:
        self.path, self.archive, self.scratch = path, archive, scratch
        self.files: list[str] = list(archive.files)
        self.block = min(BLOCK, max(scratch.memory // PART, 1 << 12))

    def array(self, name: str) -> np.ndarray | None:
        if name not in self.files:
            return None
        try:
            return self._array(name)
        except (*_DAMAGE, OSError) as error:
            hint = "; save it again as a plain array, without objects" if "ickle" in str(error) else ""
            raise FormatError(f"{self.path}: array {name} cannot be read: {error}{hint}") from error

    def _array(self, name: str) -> np.ndarray:
        inside = self.archive.zip.namelist()
        member = self.archive.zip.getinfo(f"{name}.npy" if f"{name}.npy" in inside else name)
        if not is_large(member.file_size, self.scratch):
            return self.archive[name]
        with self.archive.zip.open(member) as file:
            shape, fortran, dtype = read_header(file)
            begin = file.tell()
            num_bytes = math.prod(shape) * dtype.itemsize
            if dtype.hasobject or not num_bytes or begin + num_bytes > member.file_size:
                return self.archive[name]  # small after all, or it says what is wrong with it
            if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1:
                return self._unpacked(name, file, shape, fortran, dtype)
        self._check(name, member)
        order: Any = "F" if fortran else "C"
        return np.memmap(self.path, dtype, "r", self._begin(member) + begin, shape, order)

    def _key(self, name: str) -> str:
        return f"source/{self.path.stem}-{name}"

    def _unpacked(
        self, name: str, file: IO[bytes], shape: tuple[int, ...], fortran: bool, dtype: np.dtype
    ) -> np.ndarray:
        """The array in a file of its own, written once."""
        key = self._key(name)
        stored = shape[::-1] if fortran else shape
        if not self.scratch.done(key):
            with (
                self.scratch.array(key, stored, dtype) as made,
                self.scratch.reporter.bar(made.nbytes, f"unpacking {name} of {self.path}", "B") as progress,
            ):
                into = made.reshape(-1).view(np.uint8).data
                place = 0
                while block := file.read(min(self.block, len(into) - place)):
                    into[place : place + len(block)] = block
                    place += len(block)
                    progress(len(block))
                if place < len(into):
                    raise EOFError(f"it ends after {place} of {len(into)} bytes")
                while file.read(self.block):  # to the end, where the checksum is compared
                    pass
        array = self.scratch.load(key)
        return array.T if fortran else array

    def _check(self, name: str, member: zipfile.ZipInfo) -> None:
        """BadZipFile if the checksum of a stored array is wrong. It is compared once."""
        key = f"{self._key(name)}-checked"
        if self.scratch.done(key):
            return
        with (
            self.archive.zip.open(member) as file,
            self.scratch.reporter.bar(member.file_size, f"checking {name} of {self.path}", "B") as progress,
        ):
            while block := file.read(self.block):
                progress(len(block))
        self.scratch.save(key, np.zeros(0))

    def _begin(self, member: zipfile.ZipInfo) -> int:
        """Where the data of a stored member begin in the archive: after a header with two fields of stated lengths."""
        with open(self.path, "rb") as file:
            file.seek(member.header_offset)
            header = file.read(30)
        name, extra = struct.unpack("<HH", header[26:30])
        return member.header_offset + 30 + name + extra


def read_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype]:
    """(shape, whether columns come first, dtype) of a .npy file, which is then at its data. ValueError for another."""
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(file)
    if version == (2, 0):
        return np.lib.format.read_array_header_2_0(file)
    raise ValueError(f"it has a header of version {version[0]}.{version[1]}, expected 1.0 or 2.0")
