"""The scratch directory of one job: finished files have their final names, so a killed job can go on.

A finished file never changes. A file is written under a temporary name and renamed. A job that starts again with the
same arguments finds the finished files and does the rest. A job with other arguments, or over another input, has
another identity and begins anew.
"""

import contextlib
import hashlib
import json
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hpcgnn.errors import FormatError
from partition_tools.workspace.progress import Reporter

IDENTITY = "identity.json"


class Scratch:
    """A directory for a job's temporary files, and what else all parts of the job share.

    Args:
        directory: made if it is missing; `remove` removes it.
        identity: the facts that decide the results, any JSON value. A directory of another identity is emptied first.
        memory: bytes that the job may hold at a time.
        reporter: gets the job's stages, progress and warnings.

    Raises:
        FormatError: the directory cannot be written.
    """

    def __init__(self, directory: str | Path, identity: Any, memory: int, reporter: Reporter | None = None) -> None:
        self.directory, self.memory, self.reporter = Path(directory), memory, reporter or Reporter()
        text = json.dumps(identity, sort_keys=True, default=str)
        mark = self.directory / IDENTITY
        try:
            self.resumed = mark.is_file() and mark.read_text() == text
            if not self.resumed and not mark.is_file() and self.directory.is_dir() and any(self.directory.iterdir()):
                raise FormatError(
                    f"{self.directory} is no scratch directory of ours, and has files in it; move it, or choose "
                    "another place with --scratch"
                )
            if not self.resumed:
                shutil.rmtree(self.directory, ignore_errors=True)
                self.directory.mkdir(0o700, parents=True)  # the input may be private
                mark.write_text(text)
            for left in self.directory.rglob("*.part"):
                left.unlink()
        except OSError as error:
            raise FormatError(
                f"cannot write the scratch directory {self.directory}: {error.strerror}; choose another with --scratch"
            ) from error

    def path(self, name: str) -> Path:
        """Where the file of this name stands, finished or not."""
        return self.directory / f"{name}.npy"

    def done(self, name: str) -> bool:
        """Whether the array of this name is finished."""
        return self.path(name).is_file()

    @contextlib.contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        """Yield a temporary path; the file has its name when the body succeeds. FormatError where the disk is full."""
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{path.name}.{socket.gethostname()}.{os.getpid()}.part")
        try:
            yield part
            part.replace(path)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise FormatError(
                f"cannot write {path}: {error.strerror or error}; choose a directory with more space with --scratch"
            ) from error
        except BaseException:
            part.unlink(missing_ok=True)
            raise

    @contextlib.contextmanager
    def array(self, name: str, shape: tuple[int, ...], dtype: np.typing.DTypeLike) -> Iterator[np.ndarray]:
        """Yield an array of this shape on disk to be filled; it is finished when the body succeeds."""
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
    def appending(self, name: str, dtype: np.typing.DTypeLike) -> Iterator[Callable[[np.ndarray], None]]:
        """Yield a function that adds a vector to the end of an array; the array is finished when the body succeeds."""
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
        """A finished array, mapped and read-only: parts that nobody reads take no memory."""
        return np.load(self.path(name), mmap_mode="r")

    def read(self, name: str, start: int, stop: int) -> np.ndarray:
        """Some elements of a finished vector. No file stays open, however many vectors there are."""
        with open(self.path(name), "rb") as file:
            np.lib.format.read_magic(file)
            _, _, dtype = np.lib.format.read_array_header_1_0(file)
            file.seek(start * dtype.itemsize, os.SEEK_CUR)
            return np.fromfile(file, dtype, stop - start)

    def forget(self, name: str) -> None:
        """Remove a finished array, or a folder of them, to give its space back."""
        self.path(name).unlink(missing_ok=True)
        shutil.rmtree(self.directory / name, ignore_errors=True)

    def remove(self) -> None:
        """Remove the directory and all in it."""
        shutil.rmtree(self.directory, ignore_errors=True)


def fingerprint(path: str | Path) -> list[Any]:
    """Names, sizes and times of a file or of a folder's files: they show a changed input without reading it."""
    path = Path(path)
    files = [path]
    if path.is_dir():  # hidden files are locks and scratch directories, not input
        inside = ((each, each.relative_to(path).parts) for each in path.rglob("*"))
        files = sorted(each for each, parts in inside if each.is_file() and not any(p.startswith(".") for p in parts))
    digest = hashlib.sha256()
    for each in files:
        found = each.stat()
        digest.update(os.fsencode(each.relative_to(path.parent)) + f" {found.st_size} {found.st_mtime_ns};".encode())
    return [str(path.resolve()), len(files), digest.hexdigest()]
