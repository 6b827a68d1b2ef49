"""A job that has started: its transport, its watchdog, and how the cores of a node are shared."""

import contextlib
import faulthandler
import os
import sys
from collections.abc import Iterator
from types import ModuleType

from hpcgnn.comm.communicator import Communicator
from hpcgnn.comm.ending import meet
from hpcgnn.comm.launcher import choose_network, expected_ranks, threads_per_rank
from hpcgnn.comm.pulse import Board, Pulse
from hpcgnn.comm.watchdog import Watchdog
from hpcgnn.errors import ConfigError
from hpcgnn.memory.resident import resident_bytes

WATCHDOG_SECONDS = 300.0


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
    """MPI between its start and its end. level: of thread support; ranks_on_node; sharers: ranks of this node that may
    run on a core of this one's, itself among them; board: Board of the node; memory_bytes: what loading and starting
    took.

    limit: seconds after which a start or an end that stands still shows where, and ends this process; 0 never. Raises
    ConfigError if there is no library, or one that does not belong to the launcher.
    """

    def __init__(self, limit: float) -> None:
        without_mpi = resident_bytes()
        try:
            self._mpi = MPI = load_mpi()
        except (ImportError, RuntimeError) as error:
            raise ConfigError(
                f"no MPI library can be loaded ({' '.join(str(error).split())}); expected one inside the environment "
                "(pip install 'hpcgnn[mpi]'), on the system (load the site's module), or named by "
                "MPI4PY_LIBMPI=/path/to/libmpi.so"
            ) from error
        self._limit = limit
        with self._timed():
            self.level = MPI.Init_thread(MPI.THREAD_MULTIPLE)
            meet(MPI.COMM_WORLD)
        self.memory_bytes = resident_bytes() - without_mpi
        self.world = MPI.COMM_WORLD
        self._check()
        node = self.world.Split_type(MPI.COMM_TYPE_SHARED)
        self.ranks_on_node, self.cores = node.size, os.sched_getaffinity(0)
        # Ranks bound to cores of their own share them with nobody; all others share what they may both run on.
        self.sharers = sum(not self.cores.isdisjoint(theirs) for theirs in node.allgather(self.cores))
        self.board = Board.of_node(node, self.world.size) if self.world.size > 1 else None
        node.Free()

    def _check(self) -> None:
        MPI, (variable, expected) = self._mpi, expected_ranks()
        if self.world.size == 1 and expected > 1:
            raise ConfigError(
                f"the launcher started {expected} ranks ({variable}={expected}) but each believes to be rank 0 of 1: "
                "launcher and MPI library do not match. Expected the launcher that belongs to "
                f"{MPI.Get_library_version().split(chr(10))[0]}: {os.path.join(sys.prefix, 'bin', 'mpiexec')} if it "
                "exists, or srun with the right --mpi= (srun --mpi=list)"
            )
        if self.level < MPI.THREAD_MULTIPLE:
            raise ConfigError(
                "the MPI library was built without MPI_THREAD_MULTIPLE, which the helper thread that advances "
                "messages needs; load another MPI (see `hpcgnn doctor`)"
            )

    def transport(self, crowding: float, watchdog: Watchdog | None) -> Communicator:
        """The MpiCommunicator of all ranks. Collective."""
        from hpcgnn.comm.mpi import MpiCommunicator

        return MpiCommunicator(self.world, crowding, watchdog)

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


class Session:
    """A started job on this rank. comm: Communicator; threads: per rank; ranks_on_node; shares_cores: more threads than
    cores; level: of MPI's thread support; mpi_bytes: resident memory that loading and starting the MPI library took.

    threads: None for what the launcher says; watchdog: seconds without any progress after which the job is ended, 0
    never.
    """

    def __init__(self, threads: int | None = None, watchdog: float = WATCHDOG_SECONDS) -> None:
        self._started = started = StartedMpi(watchdog)
        self.level, self.ranks_on_node, self.mpi_bytes = started.level, started.ranks_on_node, started.memory_bytes
        world = started.world
        self.watchdog: Watchdog | None = None
        if world.size > 1:
            several_nodes = started.ranks_on_node < world.size
            self.watchdog = Watchdog(world.rank, world.size, Pulse(), watchdog, started.board, several_nodes)
            self.watchdog.start()
        self.threads = threads or threads_per_rank(len(started.cores), started.sharers)
        crowding = self.threads * started.sharers / len(started.cores)
        self.shares_cores = crowding > 1
        self.comm = started.transport(crowding, self.watchdog)

    def finish(self) -> None:
        """End the job in order. Collective."""
        self.comm.close()
        self._started.finish()
        if self.watchdog is not None:
            self.watchdog.finish()
