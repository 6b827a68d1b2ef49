"""Heartbeats of the ranks' main threads, on a board that the ranks of a node share without MPI.

MPI cannot name a missing rank: a rank that waits in it learns nothing until the message comes. So each rank's watchdog
(`watchdog.py`) keeps a record in memory that all ranks of the node map. The others can read it although no process
answers. The memory is a file that has lost its name, so nothing is left behind however the job ends.

A look at the board must cost next to nothing on any number of ranks, for it holds the interpreter's lock that the
kernels return to. So numbers are in records of one cache line each, which numpy compares in one call. Texts are in a
second area, read only for a message.
"""

import contextlib
import fcntl
import mmap
import os
import select
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

_LINE = 64  # bytes of a cache line
_WORDS = 96  # bytes of a text
_MEMORY = "/dev/shm"
# ending: exit code + 1 once the ranks of the node must leave. stacks: ranks up to this number print their stacks.
# working: so do ranks that do not wait.
_HEAD = np.dtype({"names": ["ending", "stacks", "working"], "formats": ["i8"] * 3, "itemsize": _LINE})
_NUMBERS = np.dtype(
    {
        "names": ["looks", "count", "started", "pid", "rank", "waits", "left", "failed"],
        "formats": ["i8", "i8", "i8", "i8", "i8", "u1", "u1", "u1"],
        "itemsize": _LINE,
    }
)
_TEXTS = np.dtype([("at", f"S{_WORDS}"), ("failure", f"S{_WORDS}")])


class Heartbeat:
    """A rank's signs of progress. The main thread alone writes them; the watchdog reads them.

    Attributes:
        count: grows with the rank's progress.
        at: the current work or wait.
        waits: whether it waits for other ranks.
        failure: one line about the failure, if this rank has failed.
    """

    def __init__(self) -> None:
        self.count, self.at, self.waits, self.failure = 0, "start", False, ""
        self._computes = self._stores = False

    def beat(self) -> None:
        """This rank has got on with something that takes long and sends no message."""
        self.count += 1

    @contextlib.contextmanager
    def computing(self) -> Iterator[None]:
        """The body takes long and cannot say how far it is: that it uses the processor counts instead. On a machine
        that is busy with other things even a picture takes a minute.
        """
        self._computes = True
        try:
            yield
        finally:
            self._computes = False
            self.count += 1

    @contextlib.contextmanager
    def storing(self) -> Iterator[None]:
        """The body waits for a file system, for any length of time: elapsed time counts as progress.

        It protects data that must not be lost and cannot be made again, such as the result of a finished job.
        """
        self._stores = True
        try:
            yield
        finally:
            self._stores = False
            self.count += 1

    def progress(self) -> int:
        """A number that changes whenever this rank gets on."""
        if self._stores:
            return self.count + int(10 * time.monotonic())
        if not self._computes:
            return self.count
        main = threading.main_thread().ident
        assert main is not None, "the main thread runs"
        clock = time.pthread_getcpuclockid(main)
        return self.count + int(10 * time.clock_gettime(clock))

    def arrive(self, at: str) -> None:
        """This rank begins to wait for others."""
        self.at, self.waits = at, True
        self.count += 1

    def leave(self) -> None:
        """End the wait."""
        self.waits = False
        self.count += 1


class HeartbeatRecord(NamedTuple):
    """A rank as its watchdog saw it.

    Attributes:
        started: start of the process, in clock ticks since the machine's start, for process ids are reused.
        looks: number of the watchdog's looks.
        progress: see `Heartbeat.progress`.
        left: whether it has ended in order.
        failure: description of its failure, or ''.
    """

    rank: int
    host: str
    pid: int
    started: int
    looks: int
    progress: int
    waits: bool
    at: str
    left: bool
    failure: str = ""

    def is_dead(self) -> bool:
        """Whether this process of this node has ended without having left in order."""
        return start_time(self.pid) != self.started and not self.left


class HeartbeatBoard:
    """Memory with a record for each rank of a node, and a header by which they agree to leave.

    Attributes:
        place: this rank's index among the node's ranks.
        numbers: structured array (places,), which all read, and each rank writes at its place; looks is 0 before the
            first write.
    """

    def __init__(self, memory: mmap.mmap, place: int, places: int, file: int | None = None) -> None:
        self.place, self.places, self._file = place, places, file
        self._head = np.frombuffer(memory, _HEAD, 1)
        self.numbers = np.frombuffer(memory, _NUMBERS, places, _LINE)
        self._texts = np.frombuffer(memory, _TEXTS, places, _LINE * (1 + places))
        self.host = socket.gethostname()
        self._shown = ("", "")
        pid = os.getpid()
        self._pid, self._started = pid, start_time(pid) or 0

    @classmethod
    def of_node(cls, node: Any) -> Self:
        """Return the board of a node's ranks; without a place for one, each rank has its own. Collective over `node`.

        Args:
            node: mpi4py's communicator, or an object with its rank, size, bcast and barrier.
        """
        name = None
        if node.rank == 0:
            folder = _MEMORY if os.access(_MEMORY, os.W_OK) else tempfile.gettempdir()
            with contextlib.suppress(OSError):
                handle, path = tempfile.mkstemp(prefix="hpcgnn-", dir=folder)
                os.close(handle)
                name = path
                cls.make(path, node.size)
        name = node.bcast(name)
        board = cls.open(name, node.rank, node.size) if name else None
        node.barrier()
        if node.rank == 0 and name:
            os.unlink(name)
        return board or cls.alone()

    @staticmethod
    def make(path: str | Path, places: int) -> None:
        """Write the file of a board, while there is room for it: a page that cannot be given later is a crash."""
        Path(path).write_bytes(bytes(_size(places)))

    @classmethod
    def open(cls, path: str | Path, place: int, places: int) -> Self | None:
        """A board on a file that exists, or None if it cannot be mapped here."""
        try:
            file = os.open(path, os.O_RDWR)
        except OSError:
            return None
        try:
            return cls(mmap.mmap(file, _size(places)), place, places, file)
        except (OSError, ValueError):  # a file that is shorter: the disk was full
            os.close(file)
            return None

    @classmethod
    def alone(cls) -> Self:
        """The board of a rank that shares it with nobody."""
        return cls(mmap.mmap(-1, _size(1)), 0, 1)

    def write(self, rank: int, looks: int, heartbeat: Heartbeat, left: bool) -> None:
        """Renew this rank's record: texts first, for the numbers say that there are any."""
        mine, shown = self.numbers[self.place], (heartbeat.at, heartbeat.failure)
        if shown != self._shown:
            self._texts[self.place] = tuple(text.encode()[:_WORDS] for text in shown)
            self._shown = shown
        mine["waits"], mine["count"] = heartbeat.waits, heartbeat.progress()
        mine["left"], mine["failed"] = left, bool(shown[1])
        if not mine["looks"]:
            mine["pid"], mine["started"], mine["rank"] = self._pid, self._started, rank
        mine["looks"] = looks

    def read(self, place: int) -> HeartbeatRecord:
        """The record at a place where one was written."""
        return self._records(slice(place, place + 1))[0]

    def read_all(self) -> dict[int, HeartbeatRecord]:
        """{place: HeartbeatRecord} of the ranks that have written. Costs a few microseconds for each."""
        return {place: record for place, record in enumerate(self._records(slice(None))) if record.looks}

    def _records(self, places: slice) -> list[HeartbeatRecord]:
        numbers, texts = self.numbers[places].tolist(), self._texts[places].tolist()
        return [
            HeartbeatRecord(
                *(rank, self.host, pid, started, looks, count, bool(waits), at.decode(errors="ignore"), bool(left)),
                failure.decode(errors="ignore"),
            )
            for (looks, count, started, pid, rank, waits, left, _), (at, failure) in zip(numbers, texts, strict=True)
        ]

    def claim_speech(self) -> bool:
        """Return whether this process reports for the node why the job ends. Another may do so later only if this one
        died.
        """
        if self._file is None:
            return True
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def end(self, code: int, stacks: int = -1, working: bool = False) -> None:
        """Make all ranks of the node leave.

        Args:
            code: their exit code.
            stacks: ranks up to this number show their stacks.
            working: ranks that do not wait show theirs too.
        """
        head = self._head[0]
        head["stacks"], head["working"] = stacks, working
        head["ending"] = code + 1

    def ending(self) -> tuple[int, int, bool] | None:
        """Return the arguments of `end`, or None before it was called."""
        head = self._head[0]
        return (int(head["ending"]) - 1, int(head["stacks"]), bool(head["working"])) if head["ending"] else None

    def close(self) -> None:
        """Give up the file; the memory goes with the last reference to it."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _size(places: int) -> int:
    return _LINE * (1 + places) + _TEXTS.itemsize * places


class HeartbeatHistory:
    """One rank's observations of a board: the ranks with progress, the silent ones, and the node's observer.

    Attributes:
        patience: number of looks without a change of its record after which a rank is silent.
    """

    def __init__(self, board: HeartbeatBoard, patience: int) -> None:
        self._board, self._patience = board, patience
        self._counts = np.full(board.places, -1, np.int64)
        self._looks = np.zeros(board.places, np.int64)
        self._changed = np.zeros(board.places, np.int64)  # at which look of this rank
        self._now = 0
        self.dead = np.zeros(board.places, bool)

    def look(self) -> bool:
        """Whether any rank has got on since the last look."""
        self._now += 1
        counts, looks = self._board.numbers["count"].copy(), self._board.numbers["looks"].copy()
        self._changed[looks != self._looks] = self._now
        moved = not np.array_equal(counts, self._counts)
        self._counts, self._looks = counts, looks
        return moved

    def silent(self) -> np.ndarray:
        """Which ranks have written, and then no more: bool (places,)."""
        return (self._looks > 0) & (self._now - self._changed > self._patience)

    def leader(self) -> int:
        """The place of the rank that looks after the node: the first that shows life and has not left. Others may see
        another one for a moment."""
        able = (self._looks > 0) & ~self.silent() & ~self.dead & (self._board.numbers["left"] == 0)
        return int(able.argmax()) if able.any() else self._board.place


def start_time(pid: int) -> int | None:
    """When a process of this node started, in clock ticks since the machine did; None if it is no more (or a
    zombie).
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


class ProcessWatch:
    """Watches processes until it is closed.

    One call to the kernel covers all of them (pidfd_open, Linux 5.3). Processes without a descriptor are looked up in
    /proc, each time.
    """

    def __init__(self) -> None:
        self._poll = select.epoll()
        self._descriptors: dict[int, int] = {}
        self._in_proc: dict[int, tuple[int, int]] = {}
        self._watched: set[int] = set()
        self._ended: set[int] = set()

    def watch(self, key: int, pid: int, started: int) -> None:
        """Watch a process, if `key` is not watched yet. started: as of `start_time`, since another process may have its
        number by now."""
        if key in self._watched:
            return
        self._watched.add(key)
        try:
            descriptor = os.pidfd_open(pid)
        except (OSError, AttributeError):  # an older kernel, no descriptor left, a sandbox, or no such process
            self._in_proc[key] = pid, started
            return
        self._descriptors[descriptor] = key
        self._poll.register(descriptor, select.EPOLLIN)
        if start_time(pid) != started:
            self._ended.add(key)

    def ended(self) -> set[int]:
        """Return the keys of the processes that have ended."""
        for descriptor, _ in self._poll.poll(0):
            self._ended.add(self._descriptors.pop(descriptor))
            self._poll.unregister(descriptor)
            os.close(descriptor)
        for key in [key for key, (pid, started) in self._in_proc.items() if start_time(pid) != started]:
            del self._in_proc[key]
            self._ended.add(key)
        return self._ended

    def close(self) -> None:
        """Give the descriptors back."""
        self._poll.close()
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors.clear()
