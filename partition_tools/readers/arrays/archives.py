"""Named arrays on disk, in an .npz archive or a folder of .npy files. Large ones are never in memory.

A .npy file is mapped where it lies. A large array of an archive is unpacked to a file of the scratch directory first.
Small ones are read. Pickled arrays are refused: loading one runs code of the file's author.
"""

import contextlib
import pickle
import shutil
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import numpy as np

from hpcgnn.errors import FormatError
from partition_tools.readers.tables.refused import check_file
from partition_tools.readers.tables.tables import load_npy
from partition_tools.workspace.scratch import Scratch
from partition_tools.workspace.scratch_arrays import PART, is_large

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
    pickle.UnpicklingError,
    OSError,
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
        except _DAMAGE as error:
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
    def __init__(self, path: Path, archive: np.lib.npyio.NpzFile, scratch: Scratch) -> None:
        self.path, self.archive, self.scratch = path, archive, scratch
        self.files: list[str] = list(archive.files)

    def array(self, name: str) -> np.ndarray | None:
        if name not in self.files:
            return None
        try:
            inside = self.archive.zip.namelist()
            member = self.archive.zip.getinfo(f"{name}.npy" if f"{name}.npy" in inside else name)
            if is_large(member.file_size, self.scratch):
                return np.load(self._unpacked(name, member), "r")
            return self.archive[name]
        except _DAMAGE as error:
            hint = "; save it again as a plain array, without objects" if "ickle" in str(error) else ""
            raise FormatError(f"{self.path}: array {name} cannot be read: {error}{hint}") from error

    def _unpacked(self, name: str, member: zipfile.ZipInfo) -> Path:
        """The .npy file of an array, written once; its checksum is compared."""
        key = f"source/{self.path.stem}-{name}"
        if not self.scratch.done(key):
            self.scratch.reporter.stage(f"unpacking {name} of {self.path}")
            with self.archive.zip.open(member) as packed, self.scratch.writing(key) as part, open(part, "wb") as file:
                shutil.copyfileobj(packed, file)
        return self.scratch.path(key)
