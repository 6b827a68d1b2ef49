"""MPI between its start and its end."""

import contextlib
import faulthandler
import os
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from hpcgnn import cores
from hpcgnn.comm.communicator import Communicator
from hpcgnn.comm.heartbeat import Heartbeat, HeartbeatBoard
from hpcgnn.comm.launcher import IN_A_SHELL, check_shared_memory, choose_network, chosen_network, error_of_node, launch
from hpcgnn.comm.run import end_if_failed
from hpcgnn.errors import ConfigError


def load_mpi() -> ModuleType:
    """Return mpi4py's MPI, not started yet, with the network chosen. Raises ImportError or RuntimeError without a
    library.
    """
    import mpi4py

    mpi4py.rc.initialize = mpi4py.rc.finalize = False
    from mpi4py import MPI

    choose_network(MPI)
    return MPI


def communicator_of(given: Any, threads: int) -> Communicator:
    """The MpiCommunicator of a program's own mpi4py communicator, which the program goes on to use. Collective over it.

    threads: of each rank. Raises ConfigError where that MPI was started for one thread at a time.
    """
    from mpi4py import MPI

    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        raise ConfigError(
            "comm: expected an MPI that was started with MPI_THREAD_MULTIPLE, which the helper thread that advances "
            "messages needs; start it so (mpi4py does by default)"
        )
    from hpcgnn.comm.mpi import MpiCommunicator

    node, own = given.Split_type(MPI.COMM_TYPE_SHARED), cores.Binding.of_this_rank()
    near = node.allgather(own)
    node.Free()
    return MpiCommunicator(given, own.crowding(threads, near))


class StartedMpi:
    """A started MPI.

    Attributes:
        rank, size: this rank, and the number of ranks.
        ranks_on_node, node: number of ranks of the node, and the first of them.
        binding, near: this rank's cores, and those of all ranks of the node.
        board: HeartbeatBoard of the node.

    Args:
        limit: seconds after which a stuck start or end shows its stack, and ends this process; 0 never.
        failure: see `start`.

    Raises:
        ConfigError: there is no library, it does not belong to the launcher, or /dev/shm is too small for it.
    """

    def __init__(self, limit: float, failure: tuple[str, str] | None = None) -> None:
        self.binding = cores.Binding.of_this_rank()
        try:
            self._mpi = MPI = load_mpi()
        except (ImportError, RuntimeError) as error:
            raise error_of_node(
                f"no MPI library can be loaded ({' '.join(str(error).split())}); expected one inside the environment "
                "(pip install 'hpcgnn[mpi]'), on the system (load the site's module), or named by "
                "MPI4PY_LIBMPI=/path/to/libmpi.so; --comm torch needs none"
            ) from error
        check_shared_memory(MPI.Get_library_version())
        self._limit = limit
        with self._timed(), cores.all_used():
            if failure is not None and MPI.Is_initialized():  # the others are past the first collective call
                raise RuntimeError("failed after MPI was started")
            level = MPI.Init_thread(MPI.THREAD_MULTIPLE)
            self._world = MPI.COMM_WORLD
            self.rank, self.size = self._world.rank, self._world.size
            end_if_failed(self.rank, self._world.allgather(failure and failure[0]), failure)
        self._check_launcher()
        if level < MPI.THREAD_MULTIPLE:
            raise ConfigError(
                "the MPI library was built without MPI_THREAD_MULTIPLE, which the helper thread that advances "
                "messages needs; load another MPI (see `hpcgnn doctor`)"
            )
        node = self._world.Split_type(MPI.COMM_TYPE_SHARED)
        self.ranks_on_node, self.node = node.size, node.bcast(self.rank)
        self.near: list[cores.Binding] = node.allgather(self.binding)
        self.board = HeartbeatBoard.of_node(node.rank, node.size, node.bcast)
        node.Free()

    def _check_launcher(self) -> None:
        here, library = launch(), self._mpi.Get_library_version().split("\n")[0]
        if self.size == 1 and here.size > 1:
            shell = f"{IN_A_SHELL}, or unset {here.variable}. " if here.by == "srun" else ""
            raise error_of_node(
                f"{here.variable}={here.size}, but this process is rank 0 of 1. {shell}If the "
                f"launcher started {here.size} processes, it and the MPI library do not match: expected that of "
                f"{library}: {os.path.join(sys.prefix, 'bin', 'mpiexec')} if it "
                "exists, or srun with the right --mpi= (srun --mpi=list)"
            )

    def transport(self, crowding: float, heartbeat: Heartbeat) -> Communicator:
        """The MpiCommunicator of all ranks. Collective."""
        from hpcgnn.comm.mpi import MpiCommunicator

        return MpiCommunicator(self._world, crowding, heartbeat)

    def describe(self) -> str:
        """Describe the transport for people."""
        library, network = self._mpi.Get_library_version().split("\n")[0].strip("\0 \t"), chosen_network()
        return f"{library}, thread level MULTIPLE" + (
            f", network module {network} (MPIR_CVAR_CH4_NETMOD)" if network else ""
        )

    def finish(self) -> None:
        """End MPI in order. Collective."""
        with self._timed():
            self._mpi.Finalize()

    @contextlib.contextmanager
    def _timed(self) -> Iterator[None]:
        """Limit the start or end of MPI. Both hold the interpreter's lock, so that no watchdog can run.

        A timer in C shows the stack, and ends this process.
        """
        if self._limit:
            faulthandler.dump_traceback_later(self._limit, exit=True)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()
