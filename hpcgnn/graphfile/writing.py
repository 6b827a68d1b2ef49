"""HDF5 files on a disk that may be full.

When a write fails inside the HDF5 library, it cannot close the file any more and crashes the interpreter, there or at
its end (seen with 1.14: a segmentation fault instead of "no space left on device"). So the library writes through an
object of ours. The object stores the first failure and reports success to the library. `check` then raises the failure
to the caller.
"""

import contextlib
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import h5py

from hpcgnn.errors import FormatError


class _Deferred(io.RawIOBase):
    """A file whose writes never fail: `failure` is the first OSError, and later writes are thrown away."""

    def __init__(self, path: str | Path, mode: Literal["r+b", "w+b"]) -> None:
        self._file = open(path, mode, buffering=0)
        self.failure: OSError | None = None

    def _try(self, action: Callable[..., Any], *arguments: Any) -> Any:
        if self.failure is None:
            try:
                return action(*arguments)
            except OSError as error:
                self.failure = error
        return 0

    def write(self, data: Any) -> int:
        rest = memoryview(data).cast("B")
        size = len(rest)
        while self.failure is None and len(rest):
            rest = rest[self._try(self._file.write, rest) :]
        return size

    def truncate(self, size: int | None = None) -> Any:
        self._try(self._file.truncate, size)
        return size

    def flush(self) -> None:
        """Nothing is kept back."""

    def readinto(self, buffer: Any) -> int | None:
        return self._file.readinto(buffer)

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def close(self) -> None:
        self._file.close()
        super().close()

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def check(self) -> None:
        """Raise the first failure."""
        if self.failure is not None:
            raise self.failure


@contextlib.contextmanager
def written_file(path: str | Path, change: bool = False) -> Iterator[tuple[Any, Callable[[], None]]]:
    """Yield (h5py.File, check) of a new file or, with change, of an existing one.

    check() raises OSError if a write has failed, and so does the end of the body.
    """
    with contextlib.closing(_Deferred(path, "r+b" if change else "w+b")) as raw:
        with h5py.File(raw, "r+" if change else "w", libver="latest") as file:
            yield file, raw.check
        raw.check()


@contextlib.contextmanager
def writing(path: str | Path) -> Iterator[None]:
    """Turn an OSError of the body, which writes the file at `path`, into a FormatError."""
    try:
        yield
    except OSError as error:
        raise FormatError(
            f"cannot write {path}: {error.strerror or error}; choose a directory that exists, is writable and has space"
        ) from error
