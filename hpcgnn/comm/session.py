"""A job that has started: its transport, its watchdog, and how the cores of a node are shared."""

from typing import TYPE_CHECKING, NamedTuple, Union

from hpcgnn import cores
from hpcgnn.comm.health.heartbeat import Heartbeat
from hpcgnn.comm.health.watchdog import Watchdog
from hpcgnn.comm.launch.launcher import check_shell, threads_per_rank
from hpcgnn.traits import TransportTraits

if TYPE_CHECKING:
    from hpcgnn.comm.launch.start_mpi import StartedMpi
    from hpcgnn.comm.launch.start_torch import StartedTorch

WATCHDOG_SECONDS = 300.0


class Means(NamedTuple):
    """The transport of a job: a value of --comm."""

    comm: str = "mpi"

    @property
    def backend(self) -> str:
        """The backend of torch.distributed; '' for other transports."""
        return {"torch": "gloo", "ccl": "ccl"}.get(self.comm, "")

    @property
    def traits(self) -> TransportTraits:
        """The abilities of the transport. oneCCL and ccl have collective calls only."""
        return TransportTraits(pairwise=self.comm in ("mpi", "torch"), node_memory=self.comm == "mpi")


OVER_MPI = Means()


def start(means: Means, limit: float, failure: tuple[str, str] | None = None) -> Union["StartedMpi", "StartedTorch"]:
    """Start the transport's library, and no other. Collective.

    Args:
        means: the transport's settings.
        limit: seconds that a start may take, 0 for ever.
        failure: None, or (the failure in a line, its traceback) on a failed rank. It starts to inform the others, and
            does not return.
    """
    check_shell()
    if means.backend:
        from hpcgnn.comm.launch.start_torch import StartedTorch

        return StartedTorch(means.backend, limit, failure)
    if means.comm == "oneccl":
        from hpcgnn.comm.launch.start_oneccl import StartedOneCcl

        return StartedOneCcl(limit, failure)
    from hpcgnn.comm.launch.start_mpi import StartedMpi

    return StartedMpi(limit, failure)


class Session:
    """A started job on this rank.

    Attributes:
        comm: the Communicator.
        threads: threads per rank.
        ranks_on_node, node: number of ranks of the node, and the first of them.
        crowding, shares_cores: threads per core, and whether they are more than one.
        mpi_bytes: resident memory for loading and starting the transport's library.

    Args:
        threads: None for the launcher's number (`threads_per_rank`).
        watchdog: seconds without any progress after which the job is ended, 0 never.
        means: the transport's settings.
    """

    def __init__(
        self,
        threads: int | None = None,
        watchdog: float = WATCHDOG_SECONDS,
        means: Means = OVER_MPI,
    ) -> None:
        self._started, self.means = start(means, watchdog), means
        started = self._started
        self.ranks_on_node, self.node, self.mpi_bytes = started.ranks_on_node, started.node, started.memory_bytes
        self.watchdog: Watchdog | None = None
        if started.size > 1:
            self.watchdog = Watchdog(started.rank, started.size, Heartbeat(), watchdog, started.board)
            self.watchdog.start()
        own = started.binding
        self.threads = threads or threads_per_rank(cores.physical(own.cores), own.sharers(started.near))
        self.crowding = own.crowding(self.threads, started.near)
        self.shares_cores = self.crowding > 1
        with cores.all_used():
            self.comm = started.transport(self.crowding, self.watchdog)
        self.comm.first_of_node = started.rank == started.node

    def describe(self) -> str:
        """Describe the transport for people."""
        return self._started.describe()

    def finish(self) -> None:
        """End the job in order. Collective."""
        self.comm.close()
        self._started.finish()
        if self.watchdog is not None:
            self.watchdog.finish()
