"""Messages that MPI keeps ready: one call starts all of a turn, instead of a loop in Python that posts each of them.

A rank has up to P - 1 peers in every turn, and posting takes some microseconds for each message. This time is the
interpreter's, and serial whatever the number of threads.
"""

import weakref
from collections import Counter

from mpi4py import MPI

from hpcgnn.comm.communicator import Message
from hpcgnn.comm.transports.mpi_buffers import as_bytes


class _Started(list[MPI.Request]):
    """Started requests.

    Attributes:
        owner: keeps the requests and their memory alive while they are waited for, or watched by the helper thread.
    """

    owner: "MpiPersistentRequests"


class MpiPersistentRequests:
    """Persistent requests of messages, as of `exchange`. They are freed with this object, or before by `free`."""

    def __init__(self, communicator: MPI.Comm, outgoing: list[Message], incoming: list[Message], tag: int) -> None:
        self._receives = [communicator.Recv_init(as_bytes(tensor), rank, tag) for rank, tensor in incoming]
        self._sends = [communicator.Send_init(as_bytes(tensor), rank, tag) for rank, tensor in outgoing]
        self._batches = _in_order(
            [*(("from", rank) for rank, _ in incoming), *(("to", rank) for rank, _ in outgoing)],
            [*self._receives, *self._sends],
        )
        # mpi4py drops requests and does not free them.
        self.free = weakref.finalize(self, _free, [*self._receives, *self._sends])
        self.free.atexit = False

    def start(self) -> tuple[list[MPI.Request], list[MPI.Request]]:
        for batch in self._batches:
            MPI.Prequest.Startall(batch)
        receives, sends = _Started(self._receives), _Started(self._sends)
        receives.owner = sends.owner = self
        return receives, sends


def _in_order(ways: list[tuple[str, int]], requests: list[MPI.Prequest]) -> list[list[MPI.Prequest]]:
    """Return the requests in lists that are started one after another.

    Startall starts the requests of a list in any order, so a second message for the same rank has to wait for the next
    list. With one message per peer, there is one list.
    """
    batches: dict[int, list[MPI.Prequest]] = {}
    seen: Counter[tuple[str, int]] = Counter()
    for way, request in zip(ways, requests, strict=True):
        batches.setdefault(seen[way], []).append(request)
        seen[way] += 1
    return list(batches.values())


def _free(requests: list[MPI.Prequest]) -> None:
    if not MPI.Is_finalized():
        for request in requests:
            request.Free()
