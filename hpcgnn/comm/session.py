"""A job that has started: its transport, its watchdog, and how the cores of a node are shared."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Union

from hpcgnn import cores
from hpcgnn.comm.heartbeat import Heartbeat
from hpcgnn.comm.launcher import check_shell, threads_per_rank
from hpcgnn.comm.watchdog import Watchdog
from hpcgnn.registry import Registry
from hpcgnn.traits import TransportTraits

if TYPE_CHECKING:
    from hpcgnn.comm.start_mpi import StartedMpi
    from hpcgnn.comm.start_torch import StartedTorch

WATCHDOG_SECONDS = 300.0


@dataclass(frozen=True)
class Transport:
    """A transport on offer, a value of --comm.

    Attributes:
        start: start(limit, failure) starts its library, and no other: see `start`.
        traits: its abilities.
    """

    start: Callable[[float, tuple[str, str] | None], Union["StartedMpi", "StartedTorch"]]
    traits: TransportTraits


def start(transport: str, limit: float, failure: tuple[str, str] | None = None) -> Union["StartedMpi", "StartedTorch"]:
    """Start the transport's library, and no other. Collective.

    Args:
        transport: a value of --comm.
        limit: seconds that a start may take, 0 for ever.
        failure: None, or (the failure in a line, its traceback) on a failed rank. It starts to inform the others, and
            does not return.
    """
    check_shell()
    return TRANSPORTS[transport].start(limit, failure)


def _start_mpi(limit: float, failure: tuple[str, str] | None) -> "StartedMpi":
    from hpcgnn.comm.start_mpi import StartedMpi

    return StartedMpi(limit, failure)


def _start_gloo(limit: float, failure: tuple[str, str] | None) -> "StartedTorch":
    from hpcgnn.comm.start_torch import StartedTorch

    return StartedTorch(limit, failure)


TRANSPORTS: Registry[Transport] = Registry("transport")
TRANSPORTS.register("mpi", Transport(_start_mpi, TransportTraits(pairwise=True, node_memory=True)))
TRANSPORTS.register("torch", Transport(_start_gloo, TransportTraits(pairwise=True)))


class Session:
    """A started job on this rank.

    Attributes:
        comm: the Communicator.
        transport: a value of --comm.
        threads: threads per rank.
        ranks_on_node, node: number of ranks of the node, and the first of them.
        crowding: threads per core; above 1 ranks share cores.

    Args:
        threads: None for the launcher's number (`threads_per_rank`).
        watchdog: seconds without any progress after which the job is ended, 0 never.
        transport: a value of --comm.
    """

    def __init__(
        self,
        threads: int | None = None,
        watchdog: float = WATCHDOG_SECONDS,
        transport: str = "mpi",
    ) -> None:
        self._started, self.transport = start(transport, watchdog), transport
        started = self._started
        self.ranks_on_node, self.node = started.ranks_on_node, started.node
        self.watchdog, heartbeat, own = None, Heartbeat(), started.binding
        if started.size > 1:
            self.watchdog = Watchdog(started.rank, started.size, heartbeat, watchdog, started.board)
            self.watchdog.start()
        self.threads = threads or threads_per_rank(cores.physical(own.cores), own.sharers(started.near))
        self.crowding = own.crowding(self.threads, started.near)
        with cores.all_used():
            self.comm = started.transport(self.crowding, heartbeat)
        self.comm.first_of_node = started.rank == started.node

    def describe(self) -> str:
        """Describe the transport for people."""
        return self._started.describe()

    def show_heartbeats(self, folder: str | Path) -> None:
        """Let ranks of several nodes see each other's signs of life from now on: in `heartbeats` of this folder.
        Collective.
        """
        if self.watchdog is not None and self.ranks_on_node < self.comm.size:
            self.watchdog.share(Path(folder) / "heartbeats", self.comm.barrier)

    def finish(self) -> None:
        """End the job in order. Collective."""
        self.comm.close()
        self._started.finish()
        if self.watchdog is not None:
            self.watchdog.finish()
