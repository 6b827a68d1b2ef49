"""HDF5 files that are opened to be read. One that may be sound, and cannot be opened now, is never called damaged."""

import os
from pathlib import Path
from typing import Any

import h5py

from hpcgnn.errors import AccessError


def opened(path: str | Path, **options: Any) -> Any:
    """The h5py.File at `path`, open to be read. options: of h5py.File.

    Raises AccessError where another program or a permission stands in the way, and OSError where the file is missing or
    no whole HDF5 file.
    """
    try:
        return h5py.File(path, "r", libver="latest", locking="best-effort", **options)
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        if "already open for write" in str(error):
            raise AccessError(
                f"a program that had {path} open for writing was killed, or has it open still: close it there, or "
                f"clear its mark with `h5clear -s {path}`, and verify a graph file then"
            ) from error
        if isinstance(error, BlockingIOError):
            raise AccessError(
                f"{path} is open for writing in another program, such as a notebook or HDFView: close it there"
            ) from error
        if error.errno:  # the system's, where HDF5 itself has none
            raise AccessError(
                f"{path} may not be read: {os.strerror(error.errno)}; ask its owner, or look at the file system"
            ) from error
        raise
