"""The communicator's verbs over mpi4py: typed buffers, requests, reductions.

Two facts about MPI libraries shape this file. First, none of those tried moves a large message by itself: progress is
made only inside MPI calls. A helper thread that tests the pending requests every half millisecond gives full overlap;
mpi4py releases the interpreter lock in its calls and so do our kernels. Second, waiting inside MPI spins: when ranks
share cores, a spinning rank takes the core that the awaited one needs, so we test and sleep instead.
"""

import contextlib
import functools
import os
import threading
import time
from pathlib import Path

import numpy as np
import torch
from mpi4py import MPI

from hpcgnn.comm.communicator import Communicator
from hpcgnn.comm.ledger import Ledger
from hpcgnn.comm.pulse import Pulse, make_board

_OPS = {"sum": MPI.SUM, "max": MPI.MAX, "min": MPI.MIN}
_TYPES = {torch.float32: MPI.FLOAT, torch.float64: MPI.DOUBLE, torch.int64: MPI.INT64_T, torch.int32: MPI.INT32_T}
_POLL_SECONDS = 0.0005
# The helper thread of a rank that shares cores takes them from the others whenever it wakes, so it sleeps as many
# milliseconds as there are threads for a core (`mpiexec -n 8 python jobs/bench/roofline.py` on two cores shows the
# processor time it costs).
_SHARED_POLL_SECONDS = 0.001
# Before it sleeps at all, a waiting rank lets others run so many times: messages of small graphs arrive sooner than a
# sleeper is woken (4 ranks on two cores, 200 nodes: 18 ms a step without, 14 with, and less processor time; large
# graphs: alike).
_YIELDS = 50
# Libraries before MPI 4 count in 32 bits; a halo buffer of some GiB makes larger messages.
_MOST_COUNT = 2**31 - 1


def _bytes_of(tensor):
    """The tensor's memory as an MPI buffer of bytes (bfloat16 and friends have no MPI type, and need none here)."""
    if not tensor.is_contiguous():
        raise ValueError(
            f"expected a contiguous tensor to send or receive, got strides {tensor.stride()} for {tuple(tensor.shape)}"
        )
    data = (tensor if tensor.dtype == torch.uint8 else tensor.detach().view(-1).view(torch.uint8)).numpy().reshape(-1)
    return [data, MPI.BYTE] if len(data) <= _MOST_COUNT else [data, 1, _one_of(len(data), _MOST_COUNT)]


@functools.cache
def _one_of(size, most):
    """A type of which one element has so many bytes, made with counts of at most `most`. Kept: there are few sizes."""
    whole, rest = divmod(size, most)
    piece = MPI.BYTE.Create_contiguous(most)
    kind = MPI.Datatype.Create_struct([whole, rest], [0, whole * most], [piece, MPI.BYTE]).Commit()
    piece.Free()
    return kind


def _typed(tensor):
    if not tensor.is_contiguous() or tensor.dtype not in _TYPES:
        raise ValueError(
            f"expected a contiguous tensor of {sorted(map(str, _TYPES))}, got {tensor.dtype} with strides "
            f"{tensor.stride()}"
        )
    return [tensor.detach().view(-1).numpy(), _TYPES[tensor.dtype]]


class _Progress(threading.Thread):
    """Tests pending requests from a thread of its own until they are complete or released, and sleeps `pause` seconds
    between.
    """

    def __init__(self, pause):
        super().__init__(name="hpcgnn-progress", daemon=True)
        self.pause = pause
        self.lock = threading.Lock()
        self.awake = threading.Event()
        self.pending = []
        self.stopping = False
        self.failure = None

    def run(self):
        try:
            while self.awake.wait() and not self.stopping:
                with self.lock:
                    self.pending = [requests for requests in self.pending if not MPI.Request.Testall(requests)]
                    if not self.pending and not self.stopping:
                        self.awake.clear()
                time.sleep(self.pause)
        except BaseException as error:  # shown by the rank that waits, which then ends the job
            self.failure = error

    def watch(self, requests):
        if not self.is_alive():
            self.start()
        with self.lock:
            self.pending.append(requests)
            if not self.awake.is_set():
                self.awake.set()

    def release(self, requests):
        """Take requests back: MPI forbids two threads to complete the same request."""
        with self.lock:
            self.pending = [other for other in self.pending if other is not requests]
        if self.failure is not None:
            raise RuntimeError("the thread that advances messages failed") from self.failure

    def stop(self):
        with self.lock:
            self.stopping = True
            self.awake.set()
        if self.is_alive():
            self.join()


class MpiCommunicator(Communicator):
    """The verbs over a duplicate of an MPI communicator, so that nothing else can interfere with our messages.

    crowding: threads per core; above 1, ranks share cores and wait by sleeping instead of spinning. watchdog: the
    Watchdog of this rank's pulse, if there is one.
    """

    def __init__(self, communicator: MPI.Comm, crowding: float, watchdog=None):
        self._comm = communicator.Dup()
        self._polite = crowding > 1
        self._progress = _Progress(_SHARED_POLL_SECONDS * crowding if self._polite else _POLL_SECONDS)
        self.rank, self.size = self._comm.rank, self._comm.size
        self.ledger, self._watchdog, self._heartbeats = Ledger(), watchdog, None
        self.pulse = Pulse() if watchdog is None else watchdog.pulse

    def isend(self, tensor, dest, tag, kind):
        self.ledger.add(kind, messages=1, bytes_sent=tensor.nbytes)
        return self._comm.Isend(_bytes_of(tensor), dest, tag)

    def irecv(self, tensor, source, tag, kind):
        self.ledger.add(kind, bytes_received=tensor.nbytes)
        return self._comm.Irecv(_bytes_of(tensor), source, tag)

    def progress(self, requests):
        if requests:
            self._progress.watch(requests)

    def arrived(self, requests):
        return MPI.Request.Testall(requests)

    def wait(self, requests, kind):
        if not requests:
            return
        start = time.perf_counter()
        self._progress.release(requests)
        self._finish(requests, kind)
        self.ledger.add(kind, seconds_waiting=time.perf_counter() - start)

    def _finish(self, requests, kind):
        self.pulse.arrive(self.pulse.at if kind == "control" else kind)
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
        self.pulse.leave()

    def _collective(self, request, kind, size):
        start = time.perf_counter()
        self._finish([request], kind)
        self.ledger.add(
            kind, messages=1, bytes_sent=size, bytes_received=size, seconds_waiting=time.perf_counter() - start
        )

    def allreduce_(self, tensor, kind, op="sum"):
        if tensor.numel():
            result = torch.empty_like(tensor)
            (given, number), (taken, _) = _typed(tensor), _typed(result)
            for first in range(0, len(given), _MOST_COUNT):
                part, out = given[first : first + _MOST_COUNT], taken[first : first + _MOST_COUNT]
                request = self._comm.Iallreduce([part, number], [out, number], _OPS[op])
                self._collective(request, kind, part.nbytes)
            tensor.copy_(result)
        return tensor

    def broadcast_(self, tensor, root, kind):
        if tensor.numel():
            self._collective(self._comm.Ibcast(_bytes_of(tensor), root), kind, tensor.nbytes)
        return tensor

    def allgather_object(self, value):
        data = np.frombuffer(MPI.pickle.dumps(value), np.uint8)
        counts = np.empty(self.size, np.int64)
        self._collective(self._comm.Iallgather(np.array([len(data)], np.int64), counts), "control", 8)
        out = np.empty(int(counts.sum()), np.uint8)
        self._collective(self._comm.Iallgatherv(data, [out, counts]), "control", len(data))
        return [MPI.pickle.loads(part.tobytes()) for part in np.split(out, np.cumsum(counts)[:-1])]

    def broadcast_object(self, value, root=0):
        return self.allgather_object(value if self.rank == root else None)[root]

    def barrier(self):
        self._collective(self._comm.Ibarrier(), "control", 0)

    def show_heartbeats(self, folder):
        if self._watchdog is None or not self._watchdog.several_nodes:
            return
        path = Path(folder) / "heartbeats"
        if self.rank == 0:
            with contextlib.suppress(OSError):
                make_board(path, self.size)
                self._heartbeats = path
        self.barrier()
        self._watchdog.share(path)

    def close(self):
        """Stop the helper thread and free the communicator. Collective."""
        self._progress.stop()
        self.pulse.at = "the end"
        self.barrier()
        if self._heartbeats is not None:
            self._heartbeats.unlink(missing_ok=True)
        self._comm.Free()
