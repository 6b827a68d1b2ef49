"""MPI between its start and its end."""

import contextlib
import faulthandler
import os
import sys
from collections.abc import Iterator
from types import ModuleType

from hpcgnn import cores
from hpcgnn.comm.communicator import Communicator
from hpcgnn.comm.health.heartbeat import HeartbeatBoard
from hpcgnn.comm.health.watchdog import Watchdog
from hpcgnn.comm.launch.crowding import Binding
from hpcgnn.comm.launch.ending import meet
from hpcgnn.comm.launch.launcher import choose_network, chosen_network, expected_ranks
from hpcgnn.errors import ConfigError
from hpcgnn.memory.resident import resident_bytes


def load_mpi() -> ModuleType:
    """mpi4py's MPI, not started yet, and told which network to use. Raises ImportError or RuntimeError: there is no
    library.
    """
    import mpi4py

    mpi4py.rc.initialize = mpi4py.rc.finalize = False
    from mpi4py import MPI

    choose_network(MPI)
    return MPI


class StartedMpi:
    """rank, size; ranks_on_node; node: the first of these; binding: this rank's; near: those of all ranks of the node;
    board: HeartbeatBoard of the node; memory_bytes: what loading and starting took.

    limit: seconds after which a start or an end that stands still shows where, and ends this process; 0 never. Raises
    ConfigError if there is no library, or one that does not belong to the launcher. failure: as of `start`.
    """

    def __init__(self, limit: float, failure: tuple[str, str] | None = None) -> None:
        without_mpi, self.binding = resident_bytes(), Binding.of_this_rank()
        try:
            self._mpi = MPI = load_mpi()
        except (ImportError, RuntimeError) as error:
            raise ConfigError(
                f"no MPI library can be loaded ({' '.join(str(error).split())}); expected one inside the environment "
                "(pip install 'hpcgnn[mpi]'), on the system (load the site's module), or named by "
                "MPI4PY_LIBMPI=/path/to/libmpi.so; --comm torch needs none"
            ) from error
        self._limit = limit
        with self._timed(), cores.all_used():
            if failure is not None and MPI.Is_initialized():  # the others are past the first collective call
                raise RuntimeError("failed after MPI was started")
            self._level = MPI.Init_thread(MPI.THREAD_MULTIPLE)
            meet(MPI.COMM_WORLD, failure)
        self.memory_bytes = resident_bytes() - without_mpi
        self._world = MPI.COMM_WORLD
        self.rank, self.size = self._world.rank, self._world.size
        self._check()
        node = self._world.Split_type(MPI.COMM_TYPE_SHARED)
        self.ranks_on_node, self.node = node.size, node.bcast(self.rank)
        self.near: list[Binding] = node.allgather(self.binding)
        self.board = HeartbeatBoard.of_node(node) if self._world.size > 1 else None
        node.Free()

    def _check(self) -> None:
        MPI, (variable, expected) = self._mpi, expected_ranks()
        if self._world.size == 1 and expected > 1:
            raise ConfigError(
                f"the launcher started {expected} ranks ({variable}={expected}) but each believes to be rank 0 of 1: "
                "launcher and MPI library do not match. Expected the launcher that belongs to "
                f"{MPI.Get_library_version().split(chr(10))[0]}: {os.path.join(sys.prefix, 'bin', 'mpiexec')} if it "
                "exists, or srun with the right --mpi= (srun --mpi=list)"
            )
        if self._level < MPI.THREAD_MULTIPLE:
            raise ConfigError(
                "the MPI library was built without MPI_THREAD_MULTIPLE, which the helper thread that advances "
                "messages needs; load another MPI (see `hpcgnn doctor`)"
            )

    def transport(self, crowding: float, watchdog: Watchdog | None) -> Communicator:
        """The MpiCommunicator of all ranks. Collective."""
        from hpcgnn.comm.transports.mpi import MpiCommunicator

        return MpiCommunicator(self._world, crowding, watchdog)

    def describe(self) -> str:
        """For people: what carries the messages."""
        names = {
            getattr(self._mpi, f"THREAD_{name}"): name for name in ("SINGLE", "FUNNELED", "SERIALIZED", "MULTIPLE")
        }
        library = self._mpi.Get_library_version().split("\n")[0].strip("\0 \t")
        network = chosen_network()
        return f"{library}, thread level {names[self._level]}" + (
            f", network module {network} (MPIR_CVAR_CH4_NETMOD)" if network else ""
        )

    def finish(self) -> None:
        """End MPI in order. Collective."""
        with self._timed():
            self._mpi.Finalize()

    @contextlib.contextmanager
    def _timed(self) -> Iterator[None]:
        """Start and end of MPI keep the interpreter's lock, so that no watchdog can run: a timer in C shows where we
        wait, and ends this process.
        """
        if self._limit:
            faulthandler.dump_traceback_later(self._limit, exit=True)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()
