"""The communicator's operations over mpi4py: typed buffers, requests, reductions.

Two facts about MPI libraries shape this file. First, the tested libraries never move a large message by themselves:
progress happens only inside MPI calls. A helper thread that tests the pending requests every half millisecond gives
full overlap. mpi4py releases the interpreter lock in its calls and so do our kernels. Second, waiting inside MPI spins.
When ranks share cores, a spinning rank takes the core that the awaited one needs, so we test and sleep instead.
"""

import functools
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from mpi4py import MPI

from hpcgnn import cores
from hpcgnn.comm.communicator import Exchange, Message
from hpcgnn.comm.heartbeat import Heartbeat
from hpcgnn.comm.node_memory import MpiNodeMemory
from hpcgnn.comm.transport import MessageTransport, Requests, bytes_of, traffic

_TYPES = {torch.float32: MPI.FLOAT, torch.float64: MPI.DOUBLE, torch.int64: MPI.INT64_T, torch.int32: MPI.INT32_T}
#: Libraries before MPI 4 count in 32 bits; a halo buffer of some GiB makes larger messages.
MOST_COUNT = 2**31 - 1
_OPS = {"sum": MPI.SUM, "max": MPI.MAX, "min": MPI.MIN}
_POLL_SECONDS = 0.0005
# The helper thread of a rank that shares cores takes them from the others whenever it wakes, so it sleeps as many
# milliseconds as there are threads for a core.
_SHARED_POLL_SECONDS = 0.001
# Before it sleeps at all, a waiting rank lets others run this many times: messages of small graphs arrive sooner than a
# sleeper is woken.
_YIELDS = 50
# Of a wait of minutes.
_REST_SECONDS = 0.02
# Number of requests in one test. Any call of the library advances all messages, so a test of some of a thousand does as
# much as a test of all, in a tenth of the time.
_LOOKED_AT = 64


def _through(requests: list[MPI.Request]) -> bool:
    """Test whether all requests are complete, without waiting. The list keeps the others."""
    while requests and MPI.Request.Testall(requests[-_LOOKED_AT:]):
        del requests[-_LOOKED_AT:]
    return not requests


def as_bytes(tensor: torch.Tensor) -> Any:
    """The tensor's memory as an MPI buffer of bytes."""
    data = bytes_of(tensor).numpy()
    return [data, MPI.BYTE] if len(data) <= MOST_COUNT else [data, 1, _one_of(len(data), MOST_COUNT)]


@functools.cache
def _one_of(size: int, most: int) -> MPI.Datatype:
    """Return a cached type with elements of `size` bytes, made with counts of at most `most`. There are few sizes."""
    whole, rest = divmod(size, most)
    piece = MPI.BYTE.Create_contiguous(most)
    kind = MPI.Datatype.Create_struct([whole, rest], [0, whole * most], [piece, MPI.BYTE]).Commit()
    piece.Free()
    return kind


class _Started(list[MPI.Request]):
    """Started requests.

    Attributes:
        owner: keeps the requests and their memory alive while they are waited for, or watched by the helper thread.
    """

    owner: "MpiPersistentRequests"


class MpiPersistentRequests:
    """Persistent requests of messages, as of `exchange`. They are freed with this object, or before by `free`.

    One call starts all of a turn, instead of a loop in Python that posts each of them. A rank has up to P - 1 peers in
    every turn, and posting takes some microseconds for each message. This time is the interpreter's, and serial
    whatever the number of threads.
    """

    def __init__(self, communicator: MPI.Comm, outgoing: list[Message], incoming: list[Message], tag: int) -> None:
        self._receives = [communicator.Recv_init(as_bytes(tensor), rank, tag) for rank, tensor in incoming]
        self._sends = [communicator.Send_init(as_bytes(tensor), rank, tag) for rank, tensor in outgoing]
        # Startall starts in any order: messages for the same rank are started one by one.
        self._at_once = all(len(dict(messages)) == len(messages) for messages in (incoming, outgoing))
        # mpi4py drops requests and does not free them.
        self.free = weakref.finalize(self, _free, [*self._receives, *self._sends])
        self.free.atexit = False

    def start(self) -> tuple[list[MPI.Request], list[MPI.Request]]:
        requests = [*self._receives, *self._sends]
        for batch in [requests] if self._at_once else [[each] for each in requests]:
            MPI.Prequest.Startall(batch)
        receives, sends = _Started(self._receives), _Started(self._sends)
        receives.owner = sends.owner = self
        return receives, sends


def _free(requests: list[MPI.Prequest]) -> None:
    if not MPI.Is_finalized():
        for request in requests:
            request.Free()


class ProgressThread(threading.Thread):
    """A helper thread that lets messages advance while the rank computes.

    It tests pending lists of requests until they are complete or released, and sleeps `pause` seconds between.
    """

    def __init__(self, pause: float) -> None:
        super().__init__(name="hpcgnn-progress", daemon=True)
        self.pause = pause
        self.lock = threading.Lock()
        self.awake = threading.Event()
        self.pending: dict[int, list[Any]] = {}  # by id
        self.stopping = False
        self.failure: BaseException | None = None

    def run(self) -> None:
        cores.use_all()
        try:
            while self.awake.wait() and not self.stopping:
                with self.lock:
                    self.pending = {key: each for key, each in self.pending.items() if not _through(each)}
                    if not self.pending and not self.stopping:
                        self.awake.clear()
                time.sleep(self.pause)
        except BaseException as error:  # shown by the rank that waits, which then ends the job
            self.failure = error

    def watch(self, lists: Sequence[list[Any]]) -> None:
        if self.ident is None:
            self.start()
        with self.lock:
            self.pending.update(zip(map(id, lists), lists, strict=True))
            if not self.awake.is_set():
                self.awake.set()

    def release(self, lists: Sequence[list[Any]]) -> None:
        """Take requests back: MPI forbids two threads to complete the same request."""
        with self.lock:
            for each in lists:
                self.pending.pop(id(each), None)
        if self.failure is not None:
            raise RuntimeError("the thread that advances messages failed") from self.failure

    def stop(self) -> None:
        with self.lock:
            self.stopping = True
            self.awake.set()
        if self.is_alive():
            self.join()


class MpiCommunicator(MessageTransport):
    """The operations over a duplicate of an MPI communicator, so that other code cannot interfere with our messages.

    Attributes:
        crowding: threads per core; above 1, ranks share cores and wait by sleeping instead of spinning.
    """

    def __init__(self, communicator: MPI.Comm, crowding: float, heartbeat: Heartbeat | None = None) -> None:
        self._comm = communicator.Dup()
        self._node_memory: MpiNodeMemory | None = None
        super().__init__(self._comm.rank, self._comm.size, heartbeat)
        self._crowding, self._polite = crowding, crowding > 1
        self._progress = ProgressThread(_SHARED_POLL_SECONDS * crowding if self._polite else _POLL_SECONDS)
        self._prepared: weakref.WeakSet[MpiPersistentRequests] = weakref.WeakSet()

    def _begin(self, outgoing: list[Message], incoming: list[Message], tag: int) -> Requests:
        receives = [self._comm.Irecv(as_bytes(tensor), rank, tag) for rank, tensor in incoming]
        return receives, [self._comm.Isend(as_bytes(tensor), rank, tag) for rank, tensor in outgoing]

    def prepare(self, outgoing: list[Message], incoming: list[Message], kind: str) -> Callable[..., Exchange]:
        """Persistent requests take their place in the order of all other messages, as MPI defines it.

        A started request matches like one sent at that moment (MPI 4.1, 3.9), with any request of the other end,
        prepared or not. So the rule of `exchange` is enough. Both ends begin in the same order for each pair of ranks
        and kind, however many transfers are under way.
        """
        requests = MpiPersistentRequests(self._comm, outgoing, incoming, self._tag(kind))
        self._prepared.add(requests)
        counts = traffic(outgoing, incoming)
        return lambda kind=kind: self._counted(requests.start(), kind, *counts)

    def advance(self, *lists: list[MPI.Request]) -> None:
        if lists:
            self._progress.watch(lists)

    def release(self, *lists: list[MPI.Request]) -> None:
        self._progress.release(lists)

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
        for part in [numbers] if len(numbers) <= MOST_COUNT else numbers.split(MOST_COUNT):
            buffer = [part.numpy(), _TYPES[part.dtype]]
            request = self._comm.Iallreduce(MPI.IN_PLACE, buffer, _OPS[op])
            self._collective([request], kind, part.nbytes)

    def broadcast_(self, tensor: torch.Tensor, root: int, kind: str) -> torch.Tensor:
        if tensor.numel():
            self._collective([self._comm.Ibcast(as_bytes(tensor), root)], kind, tensor.nbytes)
        return tensor

    def _gather(self, data: torch.Tensor, sizes: list[int]) -> list[torch.Tensor]:
        everyone = torch.empty(sum(sizes), dtype=torch.uint8)
        request = self._comm.Iallgatherv(data.numpy(), [everyone.numpy(), np.array(sizes)])
        self._collective([request], "control", data.numel())
        return list(everyone.split(sizes))

    def _barrier(self) -> MPI.Request:
        return self._comm.Ibarrier()

    def rest(self) -> None:
        self.heartbeat.arrive("the work of other ranks")
        requests = [self._barrier()]
        while not _through(requests):
            time.sleep(_REST_SECONDS)
        self.heartbeat.leave()

    def first(self, ranks: int) -> "MpiCommunicator | None":
        part = self._comm.Split(0 if self.rank < ranks else MPI.UNDEFINED, self.rank)
        if part == MPI.COMM_NULL:
            return None
        made = MpiCommunicator(part, self._crowding, self.heartbeat)
        made.first_of_node = self.first_of_node  # the first of its node is among them wherever another one is
        part.Free()
        return made

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
