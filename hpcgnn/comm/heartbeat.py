"""Heartbeats of the ranks' main threads: on a board that the ranks of a node share, and in files between nodes.

MPI cannot name a missing rank: a rank that waits in it learns nothing until the message comes. So each rank's watchdog
(`watchdog.py`) keeps a record in memory that all ranks of the node map. The others can read it although no process
answers. The memory is a file without a name, so nothing is left behind however the job ends.

A look at the board must cost next to nothing on any number of ranks, for it holds the interpreter's lock that the
kernels return to. So numbers of all records are compared by one call of numpy. Texts are read only for a message.

Each node has a file in `heartbeats/` of the run directory. One rank writes for its node, and one reads for it, and only
while its own node makes no progress. So the shared file system has little load. The node of rank 0 reads the first
lines of all files, and the others read its file. So the number of opened files grows with the number of nodes, not with
its square. The further lines describe each rank, for the message that ends a job and for people.
"""

import contextlib
import json
import mmap
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

_MAIN = threading.main_thread()
# ending: exit code + 1 once the ranks of the node must leave. working: ranks that do not wait print their stacks.
_HEAD = np.dtype([("ending", "i8"), ("working", "i8")])
_WORDS = 96  # bytes of a text
# A whole number of cache lines, the numbers first.
_RECORD = np.dtype(
    {
        "names": ["looks", "count", "started", "pid", "rank", "waits", "left", "at", "failure"],
        "formats": ["i8", "i8", "i8", "i8", "i8", "?", "?", f"S{_WORDS}", f"S{_WORDS}"],
        "itemsize": 256,
    }
)


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
        self._clock: Callable[[], float] | None = None

    def beat(self) -> None:
        """This rank has got on with something that takes long and sends no message."""
        self.count += 1

    def computing(self) -> contextlib.AbstractContextManager[None]:
        """The body takes long and cannot say how far it is: that it uses the processor counts instead. On a machine
        that is busy with other things even a picture takes a minute.
        """
        return self._by_clock(lambda: time.clock_gettime(time.pthread_getcpuclockid(_MAIN.ident or 0)))

    def storing(self) -> contextlib.AbstractContextManager[None]:
        """The body waits for a file system, for any length of time: elapsed time counts as progress.

        It protects data that must not be lost and cannot be made again, such as the result of a finished job.
        """
        return self._by_clock(time.monotonic)

    @contextlib.contextmanager
    def _by_clock(self, clock: Callable[[], float]) -> Iterator[None]:
        before, self._clock = self._clock, clock
        try:
            yield
        finally:
            self._clock = before
            self.count += 1

    def progress(self) -> int:
        """A number that changes whenever this rank gets on."""
        clock = self._clock
        return self.count + (0 if clock is None else int(10 * clock()))

    def arrive(self, at: str) -> None:
        """This rank begins to wait for others."""
        self.at, self.waits = at, True
        self.count += 1

    def leave(self) -> None:
        """End the wait."""
        self.waits = False
        self.count += 1


class RankState(NamedTuple):
    """A rank as the watchdog of its node sees it.

    Attributes:
        at: the current work or wait.
        waits: whether it waits for other ranks.
        silent: whether it shows no sign of life.
        failure: description of its failure, or ''.
    """

    rank: int
    host: str
    at: str
    waits: bool
    silent: bool = False
    failure: str = ""


class HeartbeatBoard:
    """Memory with a record for each rank of a node, and a header by which they agree to leave.

    Attributes:
        place: this rank's index among the node's ranks.
        records: structured array (places,), which all read, and each rank writes at its place; looks is 0 before the
            first write.
    """

    def __init__(self, memory: mmap.mmap, place: int, places: int) -> None:
        self.place, self.places = place, places
        self._head = np.frombuffer(memory, _HEAD, 1)[0]
        self.records = np.frombuffer(memory, _RECORD, places, _RECORD.itemsize)
        self._host, self._pid = socket.gethostname(), os.getpid()
        self._started = start_time(self._pid) or 0

    @staticmethod
    def num_bytes(places: int) -> int:
        """The size of a board."""
        return _RECORD.itemsize * (1 + places)

    @classmethod
    def of_node(cls, place: int, places: int, tell: Callable[[str], str]) -> Self:
        """Return the board of a node's ranks; where a rank cannot map it, it has its own. Collective: see
        `map_of_node`, also for the arguments.
        """
        memory, _, _ = map_of_node(place, cls.num_bytes(places), tell)  # the file stays open, for ranks that come late
        return cls.alone() if memory is None else cls(memory, place, places)

    @classmethod
    def alone(cls) -> Self:
        """The board of a rank that shares it with nobody."""
        return cls(mmap.mmap(-1, cls.num_bytes(1)), 0, 1)

    def write(self, rank: int, looks: int, heartbeat: Heartbeat, left: bool) -> None:
        """Renew this rank's record."""
        at, failure = (text.encode()[:_WORDS] for text in (heartbeat.at, heartbeat.failure))
        numbers = looks, heartbeat.progress(), self._started, self._pid, rank, heartbeat.waits, left
        self.records[self.place] = (*numbers, at, failure)

    def states(self, silent: np.ndarray | None = None) -> dict[int, RankState]:
        """{place: RankState} of the ranks that have written. silent: bool (places,), ranks without a sign of life."""
        still = np.zeros(self.places, bool) if silent is None else silent
        names = ["looks", "rank", "waits", "at", "failure"]
        found = {}
        records: list[Any] = self.records[names].tolist()
        for place, (looks, rank, waits, *texts) in enumerate(records):
            at, failure = (text.decode(errors="ignore") for text in texts)
            if looks:
                found[place] = RankState(rank, self._host, at, waits, bool(still[place]), failure)
        return found

    def is_gone(self, place: int) -> bool:
        """Whether a process has ended. Process ids are reused, so its start counts too."""
        record = self.records[place]
        return start_time(int(record["pid"])) != record["started"]

    def end(self, code: int, working: bool = False) -> None:
        """Make all ranks of the node leave.

        Args:
            code: their exit code.
            working: ranks that do not wait show their stacks.
        """
        self._head["working"] = working
        self._head["ending"] = code + 1

    def ending(self) -> tuple[int, bool] | None:
        """Return the arguments of `end`, or None before it was called."""
        ending, working = self._head.tolist()
        return (ending - 1, bool(working)) if ending else None


def map_of_node(place: int, nbytes: int, tell: Callable[[str], str]) -> tuple[mmap.mmap | None, int, str]:
    """Map memory that the ranks of a node share: a file without a name (memfd) of the first one. Collective.

    Args:
        place: this rank's index among the node's ranks.
        nbytes: size of the memory.
        tell: collective over the node; returns the text that the first rank gives.

    Returns:
        (memory or None, descriptor of the file or -1, why it cannot be mapped). The first rank's descriptor must stay
            open until all have mapped the file.
    """
    file, path, failure = -1, "", ""
    try:
        if place == 0:
            file = os.memfd_create("hpcgnn", os.MFD_CLOEXEC)
            os.ftruncate(file, nbytes)
            path = f"/proc/{os.getpid()}/fd/{file}"
    except OSError as error:
        failure = str(error)
    path = tell(path)
    try:
        if place != 0 and path:
            file = os.open(path, os.O_RDWR)
        return mmap.mmap(file, nbytes) if path else None, file, failure
    except OSError as error:
        return None, file, str(error)


def start_time(pid: int) -> int | None:
    """When a process of this node started, in clock ticks since the machine did; None if it is no more (or a
    zombie).
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


class NodeSummary(NamedTuple):
    """A node's state.

    Attributes:
        looks: the writer's looks, which grow from summary to summary.
        idle: seconds without progress on the node.
        job_idle: seconds without progress on all nodes it knows of.
        waiting: number of ranks that wait for others.
        ended: whether the node has reported why the job ends.
    """

    looks: int
    idle: float
    job_idle: float
    waiting: int
    ended: bool


class NodeReports:
    """The files of all nodes. folder: `heartbeats/`; first: the first rank of this node, which names its file."""

    #: The file of the node of rank 0.
    FIRST = "from-rank-0000000"

    def __init__(self, folder: Path, first: int) -> None:
        self._folder, self.name = folder, f"from-rank-{first:07d}"

    def create(self) -> None:
        """Make the file of this node. Later writing does not, so that a folder that was removed stays removed. Raises
        OSError."""
        (self._folder / self.name).touch()

    def write(self, summary: NodeSummary, ranks: dict[int, RankState]) -> None:
        """Renew this node's file. Raises OSError."""
        lines = [json.dumps(summary), *(json.dumps(rank._asdict()) for rank in ranks.values())]
        with open(self._folder / self.name, "r+") as file:
            file.write("\n".join(lines) + "\n")
            file.truncate()

    def summaries(self, first: bool = False) -> dict[str, NodeSummary]:
        """Return {name: NodeSummary} of the other nodes. Missing and half-written summaries are left out.

        Args:
            first: read the node of rank 0 alone.
        """
        found = {}
        for path in [self._folder / self.FIRST] if first else self._others():
            with contextlib.suppress(OSError, ValueError, TypeError), open(path) as file:
                found[path.name] = NodeSummary(*json.loads(file.readline()))
        return found

    def ranks(self) -> dict[str, list[RankState]]:
        """{name: [RankState]} of the other nodes."""
        found: dict[str, list[RankState]] = {}
        for path in self._others():
            states = found.setdefault(path.name, [])
            with contextlib.suppress(OSError, ValueError, TypeError):
                states += [RankState(**json.loads(line)) for line in path.read_text().splitlines()[1:]]
        return found

    def _others(self) -> list[Path]:
        try:
            return sorted(path for path in self._folder.iterdir() if path.name != self.name)
        except OSError:
            return []
