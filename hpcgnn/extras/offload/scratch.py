"""A rank's scratch file: helper threads write and read it while the rank computes.

The file has no name: a dead rank leaves nothing behind, and no other job can open it. Reads and writes bypass the page
cache if the file system allows it, so that the file takes no memory itself. Every piece has a checksum, computed on
writing and compared on reading: changed bytes are an error and never used.
"""

import contextlib
import ctypes
import errno
import mmap
import os
import tempfile
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

import numpy as np

from hpcgnn import cores
from hpcgnn.errors import HpcgnnError
from hpcgnn.memory.arena import rounded

# Bytes of a request, and threads that make requests: enough to keep a disk busy.
REQUEST, THREADS = 8 << 20, 2


class Memory(Protocol):
    """A tensor, or a storage."""

    def data_ptr(self) -> int:
        """Its address."""


#: A write or read under way, and its memory.
Flights = dict["Future[Any]", Memory]
# Of files that are gone: their memory stays until nothing is under way any more.
_LEFT: deque[Flights] = deque()


class ScratchError(HpcgnnError):
    """A scratch file that cannot be made, written or read."""


class ScratchFile:
    """A file without a name in `folder`.

    Attributes:
        written, read: bytes so far.

    Raises:
        ScratchError: the file cannot be made; other methods raise it if it cannot be written or read.
    """

    def __init__(self, folder: str) -> None:
        self.folder, self.written, self.read = folder, 0, 0
        try:
            descriptor, self.direct = _nameless(folder)
        except OSError as found:
            raise ScratchError(
                f"cannot make a scratch file in {folder}: {found.strerror}; expected a writable directory on a local "
                "disk: choose another --scratch"
            ) from found
        self._file = _File(descriptor)
        self._free: dict[int, list[int]] = {}  # {size: places that are free again}
        self._end, self._flights = 0, Flights()
        self._helpers = ThreadPoolExecutor(THREADS, "hpcgnn-scratch", cores.use_all)  # ends its threads once it is gone
        for flights in [_LEFT.popleft() for _ in range(len(_LEFT))]:
            if not all(flight.done() for flight in flights):
                _LEFT.append(flights)
        # Nothing is waited for: the collector of garbage may call this inside a thread that is just beginning and holds
        # a lock that the end of the helper threads needs.
        weakref.finalize(self, _LEFT.append, self._flights).atexit = False

    @property
    def nbytes(self) -> int:
        """The size of the file."""
        return self._end

    def place(self, size: int) -> int:
        """Return an offset with `size` free bytes, a multiple of GRAIN."""
        known = self._free.get(size)
        if known:
            return known.pop()
        self._end += size
        return self._end - size

    def give_back(self, place: int, size: int) -> None:
        """Free the bytes at an offset. The collector may call this in any statement and thread: it adds to the end of a
        list, from which `place` takes.
        """
        self._free.setdefault(size, []).append(place)

    def write(self, memory: Memory, nbytes: int, place: int, aligned: bool) -> "Future[list[int]]":
        """Begin to write memory, which must stay as it is meanwhile; the sums of its pieces come of it. aligned:
        whether it begins at a multiple of GRAIN, and the memory up to the next one after it may be read. `result` or
        `wait` must follow.
        """
        size, address = rounded(nbytes), memory.data_ptr()
        self.written += size
        if aligned:
            flight = self._helpers.submit(_write, self._file, self.direct, address, size, place)
        else:
            flight = self._helpers.submit(_write_copy, self._file, self.direct, address, nbytes, place)
        self._flights[flight] = memory
        return flight

    def fill(self, memory: Memory, size: int, place: int, sums: list[int]) -> "Future[None]":
        """Begin to read the bytes at an offset into memory. `result` or `wait` must follow.

        Args:
            memory: destination.
            size: bytes to read.
            place: offset.
            sums: checksums from the write.
        """
        self.read += size
        flight = self._helpers.submit(_read, self._file, self.direct, memory.data_ptr(), size, place, sums)
        self._flights[flight] = memory
        return flight

    def wait(self, flight: "Future[Any]") -> None:
        """Until nothing is under way, whatever comes of it."""
        with contextlib.suppress(OSError):
            flight.result()
        self._flights.pop(flight, None)

    def result(self, flight: "Future[list[int]] | Future[None]") -> list[int] | None:
        """Wait for a write or read, and return its result."""
        self.wait(flight)
        try:
            return flight.result()
        except OSError as error:
            reason = "other bytes came back than were written" if error.errno == errno.EBADMSG else error.strerror
            free = free_bytes(self.folder)
            raise ScratchError(
                f"the scratch file in {self.folder}, of {self._end / 2**30:.2f} GiB, failed: {reason} "
                f"({free / 2**30:.2f} GiB are free there); expected a local disk that works and has room: choose "
                "another --scratch, give more --memory, or take more ranks; the last checkpoint is kept"
            ) from error


class _File:
    """A descriptor, closed when the last who reads or writes has done so."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        close(self.descriptor)


def free_bytes(folder: str) -> int:
    """Bytes that may be written to a folder's file system, 0 where that is not known."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return 0
    return found.f_bavail * found.f_frsize


def _nameless(folder: str) -> tuple[int, bool]:
    """(descriptor of a new file without a name, whether it is read and written past the page cache)."""
    direct = getattr(os, "O_DIRECT", 0)
    for flags in (direct, 0):
        with contextlib.suppress(OSError):  # a file system that has no such files, or no such access
            return os.open(folder, os.O_RDWR | os.O_TMPFILE | flags, 0o600), bool(flags)
    for flags in (direct, 0):
        file, name = tempfile.mkstemp(".scratch", "hpcgnn-", folder)
        try:
            os.close(file)
            return os.open(name, os.O_RDWR | flags), bool(flags)
        except OSError:
            if not flags:
                raise
        finally:
            os.unlink(name)
    raise AssertionError("one of the ways made a file or raised")


def _write(file: _File, direct: bool, address: int, size: int, place: int) -> list[int]:
    """Returns the sum of each piece."""
    sums = []
    for first in range(0, size, REQUEST):
        piece = _memory(address + first, min(REQUEST, size - first))
        sums.append(_write_piece(file, direct, piece, place + first))
    return sums


def _write_copy(file: _File, direct: bool, address: int, nbytes: int, place: int) -> list[int]:
    """As `_write`, of memory that begins anywhere and ends with its last byte."""
    sums = []
    with contextlib.closing(mmap.mmap(-1, REQUEST)) as beside:
        whole = np.frombuffer(beside, np.uint8)
        for first in range(0, nbytes, REQUEST):
            count = min(REQUEST, nbytes - first)
            whole[:count] = _memory(address + first, count)
            whole[count : rounded(count)] = 0
            sums.append(_write_piece(file, direct, whole[: rounded(count)], place + first))
        del whole  # else the memory could not be closed
    return sums


def _write_piece(file: _File, direct: bool, piece: np.ndarray, place: int) -> int:
    total = _sum(piece)
    _all(lambda rest, at: os.pwrite(file.descriptor, rest, at), piece, place)
    if not direct:
        _forget(file.descriptor, place, len(piece), True)
    return total


def _read(file: _File, direct: bool, address: int, size: int, place: int, sums: list[int]) -> None:
    for number, first in enumerate(range(0, size, REQUEST)):
        piece = _memory(address + first, min(REQUEST, size - first))
        _all(lambda rest, at: os.preadv(file.descriptor, [rest], at), piece, place + first)
        if _sum(piece) != sums[number]:
            raise OSError(errno.EBADMSG, os.strerror(errno.EBADMSG))
        if not direct:
            _forget(file.descriptor, place + first, len(piece), False)


def _all(transfer: Callable[[memoryview, int], int], piece: np.ndarray, place: int) -> None:
    """Transfer all of a piece: the system may do some of it at a time."""
    done = 0
    while done < len(piece):
        count = transfer(piece[done:].data, place + done)
        if count == 0:
            raise OSError(errno.EIO, "the file is shorter than it was")
        done += count


def _forget(file: int, place: int, size: int, written: bool) -> None:
    """Let the page cache have nothing of a part of the file."""
    if written:
        os.fdatasync(file)
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(file, place, size, os.POSIX_FADV_DONTNEED)


def _memory(address: int, size: int) -> np.ndarray:
    """uint8 (size,): the bytes at an address, which somebody else keeps."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))


def _sum(piece: np.ndarray) -> int:
    return int(np.add.reduce(piece.view(np.uint64), dtype=np.uint64))
