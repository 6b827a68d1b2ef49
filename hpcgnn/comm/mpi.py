"""The communicator's verbs over mpi4py: typed buffers, requests, reductions.

Two facts about MPI libraries shape this file. First, none of those tried moves a large message by itself: progress is
made only inside MPI calls. A helper thread that tests the pending requests every half millisecond gives full overlap;
mpi4py releases the interpreter lock in its calls and so do our kernels. Second, waiting inside MPI spins: when ranks
share cores, a spinning rank takes the core that the awaited one needs, so we test and sleep instead.
"""

import contextlib
import os
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mpi4py import MPI

from hpcgnn.comm import mpi_buffers
from hpcgnn.comm.communicator import Communicator, Exchange, Message
from hpcgnn.comm.ledger import Ledger
from hpcgnn.comm.mpi_buffers import as_bytes, as_numbers
from hpcgnn.comm.progress import Progress
from hpcgnn.comm.pulse import Pulse, make_board
from hpcgnn.comm.watchdog import Watchdog

_OPS = {"sum": MPI.SUM, "max": MPI.MAX, "min": MPI.MIN}
# What every MPI library has at least.
_MOST_TAG = 0x7FFF
_POLL_SECONDS = 0.0005
# The helper thread of a rank that shares cores takes them from the others whenever it wakes, so it sleeps as many
# milliseconds as there are threads for a core (`mpiexec -n 8 python jobs/bench/roofline.py` shows what it costs).
_SHARED_POLL_SECONDS = 0.001
# Before it sleeps at all, a waiting rank lets others run so many times: messages of small graphs arrive sooner than a
# sleeper is woken.
_YIELDS = 50


class MpiCommunicator(Communicator):
    """The verbs over a duplicate of an MPI communicator, so that nothing else can interfere with our messages.

    crowding: threads per core; above 1, ranks share cores and wait by sleeping instead of spinning. watchdog: that of
    this rank's pulse, if there is one.
    """

    def __init__(self, communicator: MPI.Comm, crowding: float, watchdog: Watchdog | None = None) -> None:
        self._comm = communicator.Dup()
        self._polite = crowding > 1
        self._progress = Progress(
            MPI.Request.Testall, _SHARED_POLL_SECONDS * crowding if self._polite else _POLL_SECONDS
        )
        self.rank, self.size = self._comm.rank, self._comm.size
        self.ledger, self._watchdog = Ledger(), watchdog
        self._heartbeats: Path | None = None
        self.pulse = Pulse() if watchdog is None else watchdog.pulse
        self._kinds: dict[int, str] = {}  # by tag

    def exchange(self, outgoing: list[Message], incoming: list[Message], kind: str) -> Exchange:
        tag = zlib.crc32(kind.encode()) & _MOST_TAG  # a message of another kind is not taken for this one
        if self._kinds.setdefault(tag, kind) != kind:
            raise ValueError(
                f"messages of kind {kind!r} would have the tag of {self._kinds[tag]!r}; give them another name"
            )
        receives = [self._comm.Irecv(as_bytes(tensor), rank, tag) for rank, tensor in incoming]
        sends = [self._comm.Isend(as_bytes(tensor), rank, tag) for rank, tensor in outgoing]
        sent, received = (sum(tensor.nbytes for _, tensor in messages) for messages in (outgoing, incoming))
        if outgoing or incoming:
            self.ledger.add(kind, messages=len(outgoing), bytes_sent=sent, bytes_received=received)
            self.ledger.exchanges += 1
        return _MpiExchange(self, receives, sends, kind)

    def advance(self, requests: list[MPI.Request]) -> None:
        """Have the helper thread test these requests."""
        self._progress.watch(requests)

    def arrived(self, requests: list[MPI.Request]) -> bool:
        """Whether these requests are complete."""
        return self._progress.arrived(requests)

    def wait(self, requests: list[MPI.Request], kind: str) -> None:
        """Complete these requests, and count the seconds."""
        start = time.perf_counter()
        self._progress.release(requests)
        self.complete(requests, kind)
        end = time.perf_counter()
        self.ledger.add(kind, seconds_waiting=end - start)
        if self.tape is not None:
            self.tape.add("wait", "wait", start, end, {"kind": kind})

    def complete(self, requests: list[MPI.Request], kind: str) -> None:
        """Wait for these requests, without a core where ranks share cores."""
        self.pulse.arrive(self.pulse.at if kind == "control" else kind)
        ran = time.thread_time()
        if not self._polite:
            MPI.Request.Waitall(requests)
        else:
            pause, yields = 0.0, 0
            while not MPI.Request.Testall(requests):
                if yields < _YIELDS:
                    yields += 1
                    os.sched_yield()
                else:
                    time.sleep(pause)
                    pause = min(pause + 2e-5, _POLL_SECONDS)
        self.ledger.seconds_waited_on_core += time.thread_time() - ran
        self.pulse.leave()

    def _collective(self, request: MPI.Request, kind: str, size: int) -> None:
        start = time.perf_counter()
        self.complete([request], kind)
        end = time.perf_counter()
        self.ledger.add(kind, messages=1, bytes_sent=size, bytes_received=size, seconds_waiting=end - start)
        if self.tape is not None:
            self.tape.add("all ranks", "reduction", start, end, {"kind": kind, "bytes": size})

    def alltoall(self, numbers: torch.Tensor, kind: str) -> torch.Tensor:
        result = torch.empty_like(numbers)
        self._collective(self._comm.Ialltoall(numbers.numpy(), result.numpy()), kind, numbers.nbytes)
        return result

    def allreduce_(self, tensor: torch.Tensor, kind: str, op: str = "sum") -> torch.Tensor:
        if tensor.numel():
            result = torch.empty_like(tensor)
            (given, number), (taken, _) = as_numbers(tensor), as_numbers(result)
            for first in range(0, len(given), mpi_buffers.MOST_COUNT):
                part, out = given[first : first + mpi_buffers.MOST_COUNT], taken[first : first + mpi_buffers.MOST_COUNT]
                request = self._comm.Iallreduce([part, number], [out, number], _OPS[op])
                self._collective(request, kind, part.nbytes)
            tensor.copy_(result)
        return tensor

    def broadcast_(self, tensor: torch.Tensor, root: int, kind: str) -> torch.Tensor:
        if tensor.numel():
            self._collective(self._comm.Ibcast(as_bytes(tensor), root), kind, tensor.nbytes)
        return tensor

    def allgather_object(self, value: Any) -> list[Any]:
        data = np.frombuffer(MPI.pickle.dumps(value), np.uint8)
        counts = np.empty(self.size, np.int64)
        self._collective(self._comm.Iallgather(np.array([len(data)], np.int64), counts), "control", 8)
        out = np.empty(int(counts.sum()), np.uint8)
        self._collective(self._comm.Iallgatherv(data, [out, counts]), "control", len(data))
        return [MPI.pickle.loads(part.tobytes()) for part in np.split(out, np.cumsum(counts)[:-1])]

    def barrier(self) -> None:
        self._collective(self._comm.Ibarrier(), "control", 0)

    def show_heartbeats(self, folder: str | Path) -> None:
        if self._watchdog is None or not self._watchdog.several_nodes:
            return
        path = Path(folder) / "heartbeats"
        if self.rank == 0:
            with contextlib.suppress(OSError):
                make_board(path, self.size)
                self._heartbeats = path
        self.barrier()
        self._watchdog.share(path)

    def close(self) -> None:
        """Stop the helper thread and free the communicator. Collective."""
        self._progress.stop()
        self.pulse.at = "the end"
        self.barrier()
        if self._heartbeats is not None:
            self._heartbeats.unlink(missing_ok=True)
        self._comm.Free()


class _MpiExchange(Exchange):
    """Requests of MPI. The helper thread knows them by their lists."""

    def __init__(
        self, transport: MpiCommunicator, receives: list[MPI.Request], sends: list[MPI.Request], kind: str
    ) -> None:
        self._transport, self._receives, self._sends, self._kind = transport, receives, sends, kind

    def progress(self) -> None:
        for requests in (self._receives, self._sends):
            if requests:
                self._transport.advance(requests)

    def arrived(self) -> bool:
        return self._transport.arrived([*self._receives, *self._sends])

    def finish_receiving(self) -> None:
        self._receives = self._wait(self._receives)

    def finish_sending(self) -> None:
        self._sends = self._wait(self._sends)

    def _wait(self, requests: list[MPI.Request]) -> list[MPI.Request]:
        if requests:
            self._transport.wait(requests, self._kind)
        return []
