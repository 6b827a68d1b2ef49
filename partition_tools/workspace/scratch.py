"""The scratch directory of one job: its arrays in files, each under a name."""

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike

from hpcgnn.errors import FormatError
from partition_tools.workspace.progress import Reporter

#: A file that is in every scratch directory.
MARK = "scratch-of-partition-tools"


class Scratch:
    """A directory for a job's temporary files, and what else all parts of the job share.

    Args:
        directory: made anew; `remove` removes it. What an earlier job has left there goes.
        memory: bytes that the job may hold at a time.
        reporter: gets the job's stages, progress and warnings.

    Raises:
        FormatError: the directory cannot be written.
    """

    def __init__(self, directory: str | Path, memory: int, reporter: Reporter | None = None) -> None:
        self.directory, self.memory, self.reporter = Path(directory), memory, reporter or Reporter()
        mark = self.directory / MARK
        try:
            if not mark.is_file() and self.directory.is_dir() and any(self.directory.iterdir()):
                raise FormatError(
                    f"{self.directory} is no scratch directory of ours, and has files in it; move it, or choose "
                    "another place with --scratch"
                )
            shutil.rmtree(self.directory, ignore_errors=True)
            self.directory.mkdir(0o700, parents=True)  # the input may be private
            mark.touch()
        except OSError as error:
            raise FormatError(
                f"cannot write the scratch directory {self.directory}: {error.strerror}; choose another with --scratch"
            ) from error

    def path(self, name: str) -> Path:
        """Where the file of this name stands."""
        return self.directory / f"{name}.npy"

    def has(self, name: str) -> bool:
        """Whether there is an array of this name."""
        return self.path(name).is_file()

    @contextlib.contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        """Yield the path of the file. FormatError where the disk is full."""
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield path
        except OSError as error:
            raise FormatError(
                f"cannot write {path}: {error.strerror or error}; choose a directory with more space with --scratch"
            ) from error

    @contextlib.contextmanager
    def array(self, name: str, shape: tuple[int, ...], dtype: DTypeLike) -> Iterator[np.ndarray]:
        """Yield an array of this shape on disk to be filled."""
        with self.writing(name) as part:
            if np.prod(shape, dtype=np.int64) == 0:  # nothing can be mapped
                with open(part, "wb") as file:
                    np.save(file, np.zeros(shape, dtype))
                yield np.zeros(shape, dtype)
                return
            made = np.lib.format.open_memmap(part, "w+", dtype, shape)
            with open(part, "r+b") as file:  # a disk that is full is an error here, and a signal when a map is written
                os.posix_fallocate(file.fileno(), 0, os.path.getsize(part))
            yield made
            made.flush()

    @contextlib.contextmanager
    def appending(self, name: str, dtype: DTypeLike) -> Iterator[Callable[[np.ndarray], None]]:
        """Yield a function that adds a vector to the end of an array."""
        dtype = np.dtype(dtype)
        header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False}
        length = 0

        def append(values: np.ndarray) -> None:
            nonlocal length
            np.ascontiguousarray(values, dtype).tofile(file)
            length += len(values)

        with self.writing(name) as part, open(part, "wb") as file:
            np.lib.format.write_array_header_1_0(file, header | {"shape": (0,)})
            start = file.tell()
            yield append
            file.flush()
            file.seek(0)  # numpy leaves room in a header for the digits of any length
            np.lib.format.write_array_header_1_0(file, header | {"shape": (length,)})
            assert file.tell() == start, "the header has grown into the data"

    def save(self, name: str, array: np.ndarray) -> None:
        """Write an array that is in memory."""
        with self.writing(name) as part, open(part, "wb") as file:
            np.save(file, array)

    def load(self, name: str) -> np.ndarray:
        """An array, mapped and read-only: parts that nobody reads take no memory."""
        return np.load(self.path(name), mmap_mode="r")

    def read(self, name: str, dtype: DTypeLike, start: int, stop: int, length: int) -> np.ndarray:
        """Some elements of a vector of `length`. No file stays open, however many vectors there are; to parse the
        header would take longer than to read.
        """
        behind = (length - start) * np.dtype(dtype).itemsize
        return np.fromfile(self.path(name), dtype, stop - start, offset=os.path.getsize(self.path(name)) - behind)

    def forget(self, name: str) -> None:
        """Remove an array, or a folder of them, to give its space back."""
        self.path(name).unlink(missing_ok=True)
        shutil.rmtree(self.directory / name, ignore_errors=True)

    def remove(self) -> None:
        """Remove the directory and all in it."""
        shutil.rmtree(self.directory, ignore_errors=True)
