"""The communicator's operations over mpi4py: typed buffers, requests, reductions.

Two facts about MPI libraries shape this file. First, the tested libraries never move a large message by themselves:
progress happens only inside MPI calls. A helper thread that tests the pending requests every half millisecond gives
full overlap. mpi4py releases the interpreter lock in its calls and so do our kernels. Second, waiting inside MPI spins.
When ranks share cores, a spinning rank takes the core that the awaited one needs, so we test and sleep instead.
"""

import os
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from mpi4py import MPI

from hpcgnn.comm.communicator import Message
from hpcgnn.comm.health.watchdog import Watchdog
from hpcgnn.comm.transport import Transport
from hpcgnn.comm.transports import mpi_buffers
from hpcgnn.comm.transports.mpi_buffers import as_bytes, as_numbers
from hpcgnn.comm.transports.mpi_persistent import MpiPersistentRequests
from hpcgnn.comm.transports.node_memory import MpiNodeMemory
from hpcgnn.comm.transports.progress import Progress

_OPS = {"sum": MPI.SUM, "max": MPI.MAX, "min": MPI.MIN}
_POLL_SECONDS = 0.0005
# The helper thread of a rank that shares cores takes them from the others whenever it wakes, so it sleeps as many
# milliseconds as there are threads for a core.
_SHARED_POLL_SECONDS = 0.001
# Before it sleeps at all, a waiting rank lets others run this many times: messages of small graphs arrive sooner than a
# sleeper is woken.
_YIELDS = 50
# Number of requests in one test. Any call of the library advances all messages, so a test of some of a thousand does as
# much as a test of all, in a tenth of the time.
_LOOKED_AT = 64


def _through(requests: list[MPI.Request]) -> bool:
    """Test whether all requests are complete, without waiting. The list keeps the others."""
    while requests and MPI.Request.Testall(requests[-_LOOKED_AT:]):
        del requests[-_LOOKED_AT:]
    return not requests


class MpiCommunicator(Transport):
    """The operations over a duplicate of an MPI communicator, so that other code cannot interfere with our messages.

    Attributes:
        crowding: threads per core; above 1, ranks share cores and wait by sleeping instead of spinning.
        watchdog: the watchdog of this rank's heartbeat, or None.
    """

    def __init__(self, communicator: MPI.Comm, crowding: float, watchdog: Watchdog | None = None) -> None:
        self._comm = communicator.Dup()
        self._node_memory: MpiNodeMemory | None = None
        super().__init__(self._comm.rank, self._comm.size, watchdog)
        self._polite = crowding > 1
        self._progress = Progress(_through, _SHARED_POLL_SECONDS * crowding if self._polite else _POLL_SECONDS)
        self._prepared: weakref.WeakSet[MpiPersistentRequests] = weakref.WeakSet()

    def _begin(
        self, outgoing: list[Message], incoming: list[Message], tag: int
    ) -> tuple[list[MPI.Request], list[MPI.Request]]:
        receives = [self._comm.Irecv(as_bytes(tensor), rank, tag) for rank, tensor in incoming]
        return receives, [self._comm.Isend(as_bytes(tensor), rank, tag) for rank, tensor in outgoing]

    def _persistent(self, outgoing: list[Message], incoming: list[Message], tag: int) -> MpiPersistentRequests | None:
        requests = MpiPersistentRequests(self._comm, outgoing, incoming, tag)
        self._prepared.add(requests)
        return requests

    def advance(self, requests: list[MPI.Request]) -> None:
        self._progress.watch(requests)

    def arrived(self, requests: list[MPI.Request]) -> bool:
        return self._progress.arrived(requests)

    def release(self, requests: list[MPI.Request]) -> None:
        self._progress.release(requests)

    def _wait(self, requests: list[MPI.Request]) -> None:
        """Without a core where ranks share cores."""
        if not self._polite:
            MPI.Request.Waitall(requests)
            return
        self._rest_until(lambda: _through(requests))

    def _rest_until(self, through: Callable[[], bool]) -> None:
        pause, yields = 0.0, 0
        while not through():
            if yields < _YIELDS:
                yields += 1
                os.sched_yield()
            else:
                time.sleep(pause)
                pause = min(pause + 2e-5, _POLL_SECONDS)

    def alltoall(self, numbers: torch.Tensor, kind: str) -> torch.Tensor:
        result = torch.empty_like(numbers)
        self._collective([self._comm.Ialltoall(numbers.numpy(), result.numpy())], kind, numbers.nbytes)
        return result

    def _reduce_(self, numbers: torch.Tensor, kind: str, op: str) -> None:
        """Reduce without the blocking call, even if a rank has cores of its own.

        Libraries may sum in another order in the blocking call. The bits of a run would then depend on whether ranks
        share cores.
        """
        for part in numbers.split(mpi_buffers.MOST_COUNT):
            request = self._comm.Iallreduce(MPI.IN_PLACE, as_numbers(part), _OPS[op])
            self._collective([request], kind, part.nbytes)

    def broadcast_(self, tensor: torch.Tensor, root: int, kind: str) -> torch.Tensor:
        if tensor.numel():
            self._collective([self._comm.Ibcast(as_bytes(tensor), root)], kind, tensor.nbytes)
        return tensor

    def allgather_object(self, value: Any) -> list[Any]:
        data, counts = np.frombuffer(self.to_bytes(value), np.uint8), np.empty(self.size, np.int64)
        self._collective([self._comm.Iallgather(np.array([len(data)], np.int64), counts)], "control", 8)
        out = np.empty(int(counts.sum()), np.uint8)
        self._collective([self._comm.Iallgatherv(data, [out, counts])], "control", len(data))
        return self._objects(out, counts)

    def gather_object(self, value: Any, root: int = 0) -> list[Any] | None:
        data, here = np.frombuffer(self.to_bytes(value), np.uint8), self.rank == root
        counts = np.empty(self.size if here else 0, np.int64)
        length = np.array([len(data)], np.int64)
        self._collective([self._comm.Igather(length, counts if here else None, root)], "control", 8)
        out = np.empty(int(counts.sum()), np.uint8)
        request = self._comm.Igatherv(data, [out, counts] if here else None, root)
        self._collective([request], "control", len(data))
        return self._objects(out, counts) if here else None

    def _objects(self, data: np.ndarray, counts: np.ndarray) -> list[Any]:
        """The values of all ranks. counts: bytes of each."""
        return [self.of_bytes(part.tobytes()) for part in np.split(data, np.cumsum(counts)[:-1])]

    def _barrier(self) -> MPI.Request:
        return self._comm.Ibarrier()

    def node_memory(self) -> MpiNodeMemory:
        if self._node_memory is None:
            self._node_memory = MpiNodeMemory(self, self._comm)
        return self._node_memory

    def close(self) -> None:
        """Stop the helper thread and free the communicators. Collective."""
        self._progress.stop()
        for requests in list(self._prepared):
            requests.free()
        super().close()
        if self._node_memory is not None:
            self._node_memory.close()
        self._comm.Free()
