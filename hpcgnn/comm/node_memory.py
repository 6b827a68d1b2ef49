"""Memory that the ranks of one node read and write together: a file without a name, which all of them map.

MPI windows are bound by the size of /dev/shm, which containers keep small; this memory is not. It can use huge pages if
the system allows them for shared memory (/sys/kernel/mm/transparent_hugepage/shmem_enabled). It disappears with the
last reference to it, also when a rank dies.
"""

import contextlib
import mmap
import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from hpcgnn.comm.heartbeat import map_of_node
from hpcgnn.errors import ConfigError

if TYPE_CHECKING:
    from hpcgnn.comm.mpi import MpiCommunicator

_HUGE = 1 << 21


class MpiNodeMemory:
    """The NodeMemory (see comm/communicator.py) of the ranks of `ranks` that are on this rank's node."""

    def __init__(self, comm: "MpiCommunicator", ranks: MPI.Comm) -> None:
        self._comm = comm
        self._node: MPI.Intracomm = ranks.Split_type(MPI.COMM_TYPE_SHARED, key=comm.rank)  # type: ignore[assignment]
        self.ranks: list[int] = self._node.allgather(comm.rank)
        self.place: int = self._node.rank

    def allocate(self, nbytes: int) -> mmap.mmap:
        unit = _HUGE if nbytes >= _HUGE else mmap.PAGESIZE  # small things take no huge page
        size = max(1, -(-nbytes // unit)) * unit
        memory, file, failure = map_of_node(self.place, size, self._node.bcast)
        failures = self._node.allgather(failure)  # all have mapped it
        if file >= 0:
            os.close(file)
        if any(failures) or memory is None:
            raise ConfigError(
                f"--intra-node shared: the ranks of a node cannot map the memory of one of them "
                f"({max(failures, key=len)}); expected ranks of one user that see each other's /proc, in one container "
                "or in none; use --intra-node messages"
            )
        if unit == _HUGE:
            with contextlib.suppress(OSError, AttributeError):  # a system without huge pages
                memory.madvise(mmap.MADV_HUGEPAGE)
        return memory

    def gather(self, value: Any) -> list[Any]:
        return self._node.allgather(value)

    def meet(self, number: int, kind: str, held: Sequence[bool]) -> list[bool]:
        # Both ends at once: the largest number and, with its sign changed, the least.
        mine = np.array([number, -number, *held], np.int64)
        found = np.empty_like(mine)
        start = time.perf_counter()
        self._comm.complete(kind, [self._node.Iallreduce(mine, found, MPI.MAX)])
        self._comm.ledger.add(kind, seconds_waiting=time.perf_counter() - start)
        if found[0] != -found[1]:
            raise RuntimeError(
                f"the ranks of a node meet for different rows: this one for {number}, of {found[:2].tolist()}"
            )
        return [bool(each) for each in found[2:]]

    def close(self) -> None:
        """Free MPI's resources for it. Collective over the node."""
        self._node.Free()
