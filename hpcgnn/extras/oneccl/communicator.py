"""The communicator's operations with oneCCL: exchanges and all-reduces use it, all others use MPI.

oneCCL on CPUs has no tags, so an exchange is one all-to-all of all ranks (`alltoall.py`). Its own threads make
progress, so no helper thread of ours is needed. Objects, barriers and counts are small and not worth another way.
"""

import ctypes
from collections.abc import Collection
from typing import Any

import torch
from mpi4py import MPI

from hpcgnn.comm.communicator import Communicator, Message
from hpcgnn.comm.heartbeat import Heartbeat
from hpcgnn.comm.mpi import MpiCommunicator
from hpcgnn.errors import ConfigError, LostConnection
from hpcgnn.extras.oneccl.alltoall import Packed, pack
from hpcgnn.extras.oneccl.library import OPS, TYPES, error_of, settle


def oneccl_communicator(
    library: ctypes.CDLL,
    communicator: MPI.Comm,
    ranks_on_node: int,
    cores: Collection[int],
    crowding: float,
    heartbeat: Heartbeat | None = None,
) -> "OneCclCommunicator":
    """oneCCL's settings, and then its group of all ranks. Collective. communicator: of all ranks;
    ranks_on_node, cores, crowding: as for a session.
    Raises ConfigError.
    """
    mpi_family = "Open MPI" not in MPI.Get_library_version()
    one_node = bool(communicator.allreduce(ranks_on_node == communicator.size, MPI.LAND))
    settle(mpi_family, one_node, ranks_on_node, cores, crowding > 1)
    return OneCclCommunicator(library, communicator, crowding, heartbeat)


class Request:
    """A running operation of oneCCL.

    Attributes:
        handle: the library's handle.
        kept: tensors that it needs until its end.
    """

    def __init__(self, library: ctypes.CDLL, handle: int | None, *kept: torch.Tensor) -> None:
        if handle is None:
            raise LostConnection(f"oneCCL cannot begin: {error_of(library)}")
        self._library, self._handle, self._kept = library, handle, kept
        self.done = False

    def through(self) -> bool:
        """Whether it is complete; looks and does not wait."""
        if not self.done:
            self._ended(self._library.hpo_test(self._handle))
        return self.done

    def complete(self) -> None:
        """Wait for it, spinning."""
        if not self.done:
            self._ended(self._library.hpo_wait(self._handle) or 1)

    def _ended(self, code: int) -> None:
        if code < 0:
            self.done = True  # it is gone
            raise LostConnection(f"oneCCL failed: {error_of(self._library)}")
        self.done = code == 1


class _Arrival:
    """An exchange under way: its header first, then its data, cut into the waiting tensors."""

    def __init__(self, first: Request, second: Request, told: torch.Tensor, result: torch.Tensor, packed: Packed):
        self._first, self._second, self._told, self._result, self._packed = first, second, told, result, packed
        self._checked = self.done = False

    def through(self) -> bool:
        if not self.done and self._first.through():
            self._check()
            if self._second.through():
                self._finish()
        return self.done

    def complete(self) -> None:
        if not self.done:
            self._first.complete()
            self._check()
            self._second.complete()
            self._finish()

    def _check(self) -> None:
        if not self._checked:
            self._packed.check(self._told.tolist())
            self._checked = True

    def _finish(self) -> None:
        self._packed.unpack(self._result)
        self.done = True


class OneCclCommunicator(MpiCommunicator):
    """The verbs over the ranks of an MPI communicator. Collective. library: of `library.load`; the rest is as
    for MpiCommunicator. Raises ConfigError where oneCCL cannot start.
    """

    pairwise = False
    prepare = Communicator.prepare  # an exchange is a call of all ranks: no request of one rank's

    def __init__(
        self, library: ctypes.CDLL, communicator: MPI.Comm, crowding: float, heartbeat: Heartbeat | None = None
    ) -> None:
        super().__init__(communicator, crowding, heartbeat)
        self._library = library
        self._group = self._opened()

    def _opened(self) -> int:
        """Return the group of all ranks. Rank 0 sends the address."""
        library, group = self._library, None
        size, told, failure = library.hpo_address_size(), None, ""
        if self.rank == 0:
            address = ctypes.create_string_buffer(size)
            group = library.hpo_open(address, 1)
            told, failure = address.raw, "" if group is not None else error_of(library)
        told, failure = self.broadcast_object((told, failure))
        if not failure and group is None:
            group = library.hpo_open(ctypes.create_string_buffer(told, size), 0)
            failure = "" if group is not None else error_of(library)
        failure = next((each for each in self.allgather_object(failure) if each), "")
        if not failure and group is not None:
            if library.hpo_join(group, self.size, self.rank) == 0:
                return int(group)
            failure = error_of(library)
        raise ConfigError(
            f"oneCCL cannot start: {failure}; CCL_LOG_LEVEL=info says more, CCL_ATL_TRANSPORT=ofi or mpi is the other "
            "way between the ranks, and CCL_KVS_IFACE names the network interface by which they meet"
        )

    def _begin(self, outgoing: list[Message], incoming: list[Message], tag: int) -> tuple[list[Any], list[Any]]:
        if self.size == 1 and not outgoing and not incoming:
            return [], []
        packed = pack(outgoing, incoming, tag, self.size)
        told = torch.empty_like(packed.header)
        result = torch.empty(sum(packed.received), dtype=torch.uint8)
        first = self._parts(packed.header, [8] * self.size, told, [8] * self.size)
        second = self._parts(packed.given, packed.sent, result, packed.received)
        return [_Arrival(first, second, told, result, packed)], []

    def _parts(self, given: torch.Tensor, sent: list[int], result: torch.Tensor, received: list[int]) -> Request:
        """Exchange parts with all ranks. sent, received: bytes of each."""
        counts = ctypes.c_size_t * self.size
        handle = self._library.hpo_exchange(
            self._group, given.data_ptr(), counts(*sent), result.data_ptr(), counts(*received)
        )
        return Request(self._library, handle, given, result)

    def advance(self, *lists: list[Any]) -> None:
        """Nothing to do: oneCCL has a thread for that."""

    def release(self, *lists: list[Any]) -> None:
        """Nothing was handed over."""

    def arrived(self, requests: list[Any]) -> bool:
        return all(each.through() for each in requests)

    def _wait(self, requests: list[Any]) -> None:
        """MPI's and oneCCL's are never in one list."""
        if requests and isinstance(requests[0], MPI.Request):
            super()._wait(requests)
        elif self._polite:
            self._rest_until(lambda: self.arrived(requests))
        else:
            for each in requests:
                each.complete()

    def _reduce_(self, numbers: torch.Tensor, kind: str, op: str) -> None:
        handle = self._library.hpo_reduce(
            self._group, numbers.data_ptr(), numbers.numel(), TYPES[numbers.dtype], OPS[op]
        )
        self._collective([Request(self._library, handle, numbers)], kind, numbers.nbytes)

    def close(self) -> None:
        """End oneCCL's group, which must be gone before MPI ends. Collective."""
        self.barrier()
        self._library.hpo_close(self._group)
        super().close()
