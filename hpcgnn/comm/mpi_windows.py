"""Memory that the ranks of one node read and write together, in shared windows of MPI (MPI-3.1, section 11.2.3).

It is of the node's shared memory, which on Linux is /dev/shm; containers often have little of that.
"""

import os
import time
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from hpcgnn.errors import ConfigError

if TYPE_CHECKING:
    from hpcgnn.comm.mpi import MpiCommunicator

_SHARED_MEMORY = "/dev/shm"


class MpiNodeMemory:
    """The NodeMemory (see communicator.py) of the ranks of `ranks` that are on this rank's node."""

    def __init__(self, comm: "MpiCommunicator", ranks: MPI.Comm) -> None:
        self._comm = comm
        self._node: MPI.Intracomm = ranks.Split_type(MPI.COMM_TYPE_SHARED, key=comm.rank)  # type: ignore[assignment]
        self.ranks: list[int] = self._node.allgather(comm.rank)
        self.place: int = self._node.rank
        self._windows: dict[int, MPI.Win] = {}

    def allocate(self, nbytes: int) -> MPI.buffer:
        room = np.array([_room()])
        self._node.Allreduce(MPI.IN_PLACE, room, MPI.MIN)
        if nbytes > room[0]:
            error = ConfigError(
                f"--intra-node shared: {_SHARED_MEMORY} has room for {room[0] / 2**20:,.0f} MiB, and the ranks of this "
                f"node need {nbytes / 2**20:,.0f} MiB more to share; make it larger (mount -o remount,size=…; "
                "containers: --shm-size), or use --intra-node messages"
            )
            error.everywhere = self._comm.size == len(self.ranks)
            raise error
        window = MPI.Win.Allocate_shared(nbytes if self.place == 0 else 0, 1, comm=self._node)
        memory, _ = window.Shared_query(0)
        self._windows[memory.address] = window
        return memory

    def free(self, buffer: MPI.buffer) -> None:
        self._windows.pop(buffer.address).Free()

    def gather(self, value: Any) -> list[Any]:
        return self._node.allgather(value)

    def meet(self, number: int, kind: str) -> None:
        # Both ends at once: the largest number and, with its sign changed, the least.
        mine, found = np.array([number, -number]), np.empty(2, np.int64)
        start = time.perf_counter()
        self._comm.complete([self._node.Iallreduce(mine, found, MPI.MAX)], kind)
        self._comm.ledger.add(kind, seconds_waiting=time.perf_counter() - start)
        if found[0] != -found[1]:
            raise RuntimeError(
                f"the ranks of a node meet for different rows: this one for {number}, of {found.tolist()}"
            )

    def close(self) -> None:
        """Free the memory. Nobody may read it any more."""
        for window in self._windows.values():
            window.Free()
        self._windows.clear()
        self._node.Free()


def _room() -> int:
    """Bytes that are free, or a very large number where the system does not say."""
    try:
        found = os.statvfs(_SHARED_MEMORY)
    except OSError:
        return 2**62
    return found.f_bavail * found.f_frsize
