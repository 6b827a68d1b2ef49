"""Signs of life: what the main thread of a rank does, and the board on which the ranks of a node show it to each other
without MPI.

MPI cannot say who is missing: a rank that waits in it learns nothing until the message comes. So the watchdog of each
rank (`watchdog.py`) keeps a record in memory that all ranks of the node map, and that the others can read although
nobody answers. The memory is a file that has no name any more, so nothing is left behind however the job ends.

A look at the board must cost next to nothing on any number of ranks, for it holds the interpreter's lock that the
kernels return to. Numbers therefore stand in records of one cache line each, which numpy compares in one call, and
texts in a second area, which is read only when somebody must speak.
"""

import contextlib
import fcntl
import mmap
import os
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from hpcgnn.comm.health.processes import start_time

_LINE = 64  # bytes of a cache line
_WORDS = 96  # bytes of a text
_MEMORY = "/dev/shm"
# ending: exit code + 1 once the ranks of the node are to leave; stacks: ranks up to this number show theirs, working:
# and so do those that do not wait.
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
    """count: grows whenever this rank gets on; at: what it does or waits for; waits: whether it waits for other ranks;
    failure: what went wrong in a line, if this rank has failed.

    Written by the main thread alone, read by the watchdog.
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
        """The body waits for a file system, for as long as that may take: the time that passes counts. For what must
        not be lost and can be asked for only once, such as the result of a job that is done.
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
        """What it waited for has come."""
        self.waits = False
        self.count += 1


class HeartbeatRecord(NamedTuple):
    """A rank as its watchdog saw it. started: when the process did, in clock ticks since the machine's start, for
    process ids are used again; looks: how often the watchdog looked; progress: as of `Heartbeat.progress`; left:
    whether it has ended in order; failure: what went wrong, if anything did.
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
    """Memory with a record for each rank of a node, and a head by which they agree to leave.

    place: of this rank among those of the node. numbers: structured array (places,), read by all, written by each rank
    at its place; looks is 0 where nobody has written yet.
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
        """The board of the ranks of a node; where there is no place for one, each rank has its own. Collective over
        `node`: mpi4py's communicator, or what has its rank, size, bcast and barrier.
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
        """Whether this process is the one of the node that says why the job ends. Another can be later on only if this
        one has died."""
        if self._file is None:
            return True
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def end(self, code: int, stacks: int = -1, working: bool = False) -> None:
        """Have all ranks of the node leave with this code. stacks: ranks up to this number show where they stand;
        working: so do those that do not wait."""
        head = self._head[0]
        head["stacks"], head["working"] = stacks, working
        head["ending"] = code + 1

    def ending(self) -> tuple[int, int, bool] | None:
        """What `end` was told, or None."""
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
    """What one rank has seen of a board from look to look: who gets on, who is silent, and who looks for the node.

    patience: looks without a change of a record after which its rank is silent.
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
