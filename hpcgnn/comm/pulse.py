"""Signs of life: what the main thread of a rank does, and the boards on which the ranks show it to each other without
MPI.

MPI cannot say who is missing: a rank that waits in it learns nothing until the message comes. So each rank keeps a line
of text, renewed by its watchdog (`watchdog.py`), on a board that the others can read although nobody answers:

* of its node: a file in memory that has no name any more, so nothing is left behind however the job ends;
* of the job, where it runs on several nodes: the file `heartbeats` in the run directory, which also tells a person who
  looks at it what the job does.
"""

import contextlib
import json
import os
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

LINE_BYTES = 512
# Of what a rank says of itself, so that a line holds it however it is written.
_WORDS = 48
_MEMORY = "/dev/shm"
# What JSON would write as several characters.
_PLAIN = {ord('"'): "'", ord("\\"): "/", **{code: " " for code in (*range(32), 127)}}


class Pulse:
    """count: grows whenever this rank gets on; at: what it does or waits for; waits: whether it waits for other ranks;
    failure: what went wrong in a line, if this rank has failed.

    Written by the main thread alone, read by the watchdog.
    """

    def __init__(self) -> None:
        self.count, self.at, self.waits, self._computes = 0, "start", False, False
        self.failure = ""

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

    def progress(self) -> int:
        """A number that changes whenever this rank gets on."""
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


@dataclass(frozen=True)
class Line:
    """A rank as its watchdog saw it. beats: how often the watchdog looked; born: of the process, in clock ticks since
    the machine's start, for process ids are used again; left: whether it has ended MPI in order; failure: what went
    wrong, if anything did."""

    rank: int
    host: str
    pid: int
    born: int | None
    beats: int
    count: int
    waits: bool
    at: str
    left: bool
    failure: str = ""

    def is_dead(self) -> bool:
        """Whether this process of this node has ended without having left in order."""
        return not self.left and born(self.pid) != self.born


def born(pid: int) -> int | None:
    """When a process of this node started, in clock ticks since the machine did; None if it is no more (or a
    zombie).
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def own_line(rank: int, beats: int, pulse: Pulse, left: bool) -> Line:
    """The line of this process."""
    pid = os.getpid()
    words = pulse.failure.encode("ascii", "replace").decode().translate(_PLAIN)[:_WORDS]
    return Line(
        *(rank, socket.gethostname()[:_WORDS], pid, born(pid), beats, pulse.progress()),
        *(pulse.waits, pulse.at[:_WORDS], left, words),
    )


class Board:
    """A file with a line for each rank of the job, empty for those that do not write to it."""

    def __init__(self, descriptor: int, size: int) -> None:
        self._file, self._size = descriptor, size

    @classmethod
    def of_node(cls, node: Any, size: int) -> Self | None:
        """A board of the ranks of a node, or None where there is no place for one. Collective over `node` (mpi4py)."""
        name = None
        if node.rank == 0:
            folder = _MEMORY if os.access(_MEMORY, os.W_OK) else tempfile.gettempdir()
            try:
                handle, name = tempfile.mkstemp(prefix="hpcgnn-", dir=folder)
                os.close(handle)
                make_board(name, size)  # room for every line, while there is room
            except OSError:
                pass
        name = node.bcast(name)
        board = cls.open(name, size) if name else None
        node.barrier()
        if node.rank == 0 and name:
            os.unlink(name)
        return board

    @classmethod
    def open(cls, path: str | Path, size: int) -> Self | None:
        """A board on a file that exists, or None if it cannot be opened here."""
        try:
            return cls(os.open(path, os.O_RDWR), size)
        except OSError:
            return None

    def write(self, line: Line) -> bool:
        """Renew a rank's line. Says whether it could be written."""
        text = json.dumps(asdict(line)).encode()
        try:
            os.pwrite(self._file, text.ljust(LINE_BYTES - 1) + b"\n", line.rank * LINE_BYTES)
        except OSError:
            return False
        return len(text) < LINE_BYTES

    def read(self) -> dict[int, Line]:
        """{rank: Line} of the ranks that have written; without those whose line is being written right now."""
        try:
            text = os.pread(self._file, self._size * LINE_BYTES, 0)
        except OSError:
            return {}
        lines: dict[int, Line] = {}
        for rank in range(self._size):
            part = text[rank * LINE_BYTES : (rank + 1) * LINE_BYTES].strip(b"\0 \n")
            try:
                lines[rank] = Line(**json.loads(part))
            except (ValueError, TypeError):
                continue
        return lines

    def close(self) -> None:
        os.close(self._file)


def make_board(path: str | Path, size: int) -> None:
    """Write the file of a board for so many ranks, with no lines yet."""
    with open(path, "wb") as file:
        file.write((b" " * (LINE_BYTES - 1) + b"\n") * size)
