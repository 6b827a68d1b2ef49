"""Named arrays on disk, in an .npz archive or a folder of .npy files. Large ones are never in memory.

A .npy file is mapped where it lies. A large array of an archive is unpacked to a file of the scratch directory first.
Small ones are read. Pickled arrays are refused: loading one runs code of the file's author.
"""

import contextlib
import functools
import pickle
import shutil
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hpcgnn.errors import FormatError
from partition_tools.readers.tables.refused import check_file
from partition_tools.readers.tables.tables import map_npy
from partition_tools.workspace.scratch import Scratch
from partition_tools.workspace.scratch_arrays import is_large

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


Arrays = Mapping[str, Callable[[], np.ndarray]]
"""{name: reads this array}. It raises FormatError for pickled and damaged ones."""


@contextlib.contextmanager
def open_arrays(path: Path, scratch: Scratch) -> Iterator[Arrays]:
    """The arrays of an .npz archive or a folder of .npy files, for a `with` statement. FormatError if it is neither."""
    if path.is_dir():
        files = sorted(path.glob("*.npy"))
        for file in files:
            check_file(file)
        yield {file.stem: functools.partial(map_npy, file) for file in files}
        return
    with open(path, "rb") as handle:
        try:
            archive = np.load(handle, allow_pickle=False)
        except _DAMAGE as error:
            raise FormatError(f"{path} is not a readable .npz archive: {error}") from error
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise FormatError(f"{path} is a single array, expected an .npz archive of several")
        with archive:
            yield {name: functools.partial(_member, path, archive, name, scratch) for name in archive.files}


def _member(path: Path, archive: Any, name: str, scratch: Scratch) -> np.ndarray:
    """An array of an archive. A large one is mapped from a .npy file of its own, written once."""
    try:
        inside = archive.zip.namelist()
        member = archive.zip.getinfo(f"{name}.npy" if f"{name}.npy" in inside else name)
        if not is_large(member.file_size, scratch):
            return archive[name]
        key = f"source/{path.stem}-{name}"
        scratch.reporter.stage(f"unpacking {name} of {path}")
        with archive.zip.open(member) as packed, scratch.writing(key) as target, open(target, "wb") as file:
            shutil.copyfileobj(packed, file, 1 << 16)  # it compares the checksum; zipfile holds four such pieces
        return np.load(scratch.path(key), "r")
    except _DAMAGE as error:
        hint = "; save it again as a plain array, without objects" if "ickle" in str(error) else ""
        raise FormatError(f"{path}: array {name} cannot be read: {error}{hint}") from error
