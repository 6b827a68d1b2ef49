"""torch.distributed between its start and its end, on ranks that whatever launcher has started, without an MPI."""

from datetime import timedelta
from typing import Any, cast

import torch
import torch.distributed as dist

from hpcgnn import cores
from hpcgnn.comm.communicator import Communicator
from hpcgnn.comm.health.heartbeat import HeartbeatBoard
from hpcgnn.comm.health.watchdog import Watchdog
from hpcgnn.comm.launch.addresses import LOOPBACK
from hpcgnn.comm.launch.crowding import Binding
from hpcgnn.comm.launch.ending import end_before_start
from hpcgnn.comm.launch.launcher import chosen_interface, launch
from hpcgnn.comm.launch.pmi import Pmi
from hpcgnn.comm.launch.rendezvous import meet
from hpcgnn.comm.launch.secret import SEAL_LETTERS, is_seal, seal
from hpcgnn.comm.transports.gloo import FOREVER, check_gloo, gloo_communicator
from hpcgnn.comm.transports.torch_verbs import TorchCommunicator
from hpcgnn.errors import ConfigError
from hpcgnn.memory.resident import resident_bytes


class StartedTorch:
    """torch.distributed with gloo, started; see `StartedMpi`. A subclass has another backend.

    Args:
        limit: seconds until all ranks must have come, 0 for no limit.
        failure: None, or (one line, its traceback) on a rank that could not start. Then no rank returns.
    """

    backend = "gloo"

    def __init__(self, limit: float, failure: tuple[str, str] | None = None) -> None:
        before, self._launch = resident_bytes(), launch()
        self.rank, self.size, self._store = self._launch.rank, self._launch.size, cast(Any, None)
        self._pmi: Pmi | None = None
        self.board: HeartbeatBoard | None = None
        self.address, self.binding = LOOPBACK, Binding.of_this_rank()
        self._timeout = timedelta(seconds=limit) if limit else FOREVER
        with cores.all_used():
            self._start(limit, failure)
        self.memory_bytes = resident_bytes() - before

    def check(self) -> None:
        """Raise ConfigError where this torch or this machine does not have the backend."""
        check_gloo()

    def communicator(self, store: Any, watchdog: Watchdog | None) -> TorchCommunicator:
        """The verbs over a new process group. Collective. store: torch's, of all ranks."""
        return gloo_communicator(store, self.rank, self.size, self.address, watchdog)

    def _start(self, limit: float, failure: tuple[str, str] | None) -> None:
        mistake: str | None = None
        try:
            self.check()
        except ConfigError as error:
            mistake = str(error)
        if self.size == 1:
            if mistake is not None:
                raise ConfigError(mistake)
            self._store, self.ranks_on_node, self.node, self.near = dist.HashStore(), 1, 0, [self.binding]
        else:
            self._meet(mistake, failure, limit)

    def _meet(self, mistake: str | None, failure: tuple[str, str] | None, limit: float) -> None:
        """Find the other ranks, and the data shared with this one."""
        here = self._launch
        if here.pmi is not None:
            self._pmi = Pmi(here.pmi, limit)
        mine: dict[str, Any] = {"node": here.node, "failure": failure and failure[0], "mistake": mistake}
        mine |= {
            "cores": sorted(self.binding.cores),
            "main": sorted(self.binding.main if self.binding.by_openmp else ()),
        }
        said, self.address, first, port, key = meet(here, self._pmi, mine, self._open_store, limit)
        lines = {rank: each["failure"] for rank, each in enumerate(said) if each["failure"] is not None}
        if lines:
            end_before_start(self.rank, lines, failure, "the ranks had met")
        mistakes = [each["mistake"] for each in said if each["mistake"] is not None]
        if mistakes:
            self.finish()
            raise ConfigError.on_all(mistakes[0])
        if self._store is None:
            self._store = dist.TCPStore(first, port, is_master=False, timeout=self._timeout)
        self._store = SealedStore(self._store, key)
        near = [rank for rank, each in enumerate(said) if each["node"] == here.node]
        self.ranks_on_node, self.node = len(near), near[0]
        self.near = [Binding.of_lists(said[rank]["cores"], said[rank]["main"]) for rank in near]
        self.board = HeartbeatBoard.of_node(_Node(self._store, near, self.rank))

    def _open_store(self, address: str) -> int:
        """On rank 0: torch's store, at a port that was free."""
        self._store = dist.TCPStore(address, 0, is_master=True, wait_for_workers=False, timeout=self._timeout)
        return int(self._store.port)

    def transport(self, crowding: float, watchdog: Watchdog | None) -> Communicator:
        """The communicator of all ranks. Collective. Ranks that wait sleep, whether they share cores or not."""
        if watchdog is not None:
            watchdog.heartbeat.arrive("the first connections")
        try:
            made = self.communicator(self._store, watchdog)
        except RuntimeError as error:
            raise ConfigError(
                f"rank {self.rank} of {self.size} finds no way to the other ranks by {self.backend} from "
                f"{self.address}: {str(error).splitlines()[0]}; check that no firewall is between the nodes, or choose "
                "another network (GLOO_SOCKET_IFNAME)"
            ) from error
        if watchdog is not None:
            watchdog.heartbeat.leave()
        return made

    def describe(self) -> str:
        """Describe the transport for people."""
        way = chosen_interface() or self.address
        return f"torch {torch.__version__}, {self.backend} over {way}; ranks started by {self._launch.by}"

    def finish(self) -> None:
        """End in order. Collective."""
        if dist.is_initialized():
            dist.destroy_process_group()
        self._store = None
        if self._pmi is not None:
            self._pmi.finish()


class SealedStore(dist.Store):
    """A store whose values carry a seal: torch's own takes keys and values from whoever reaches its port.

    Counts of `add` have none, since the store itself makes them. key: bytes that the ranks alone know.
    """

    def __init__(self, store: Any, key: bytes) -> None:
        super().__init__()
        self._store, self._key = store, key

    def set(self, key: str, value: str | bytes) -> None:  # torch's stubs know texts alone
        data = value.encode() if isinstance(value, str) else bytes(value)
        self._store.set(key, seal(self._key, key, data.hex()).encode() + data)

    def get(self, key: str) -> bytes:
        found = bytes(self._store.get(key))
        given, data = found[:SEAL_LETTERS], found[SEAL_LETTERS:]
        if not is_seal(given.decode(errors="replace"), self._key, key, data.hex()):
            raise ConfigError(f"the store of torch has a value of {key} that no rank of this job has written")
        return data

    def add(self, key: str, amount: int) -> int:
        return int(self._store.add(key, amount))

    def wait(self, keys: list[str], *timeout: timedelta) -> None:
        self._store.wait(keys, *timeout)

    def check(self, keys: list[str]) -> bool:
        return bool(self._store.check(keys))


class _Node:
    """The ranks of a node for HeartbeatBoard.of_node: mpi4py's interface over torch's store."""

    def __init__(self, store: Any, ranks: list[int], rank: int) -> None:
        self._store, self._first, self.size, self._steps = store, ranks[0], len(ranks), 0
        self.rank = ranks.index(rank)

    def _key(self) -> str:
        self._steps += 1
        return f"hpcgnn/node-{self._first}/{self._steps}"

    def bcast(self, value: str | None) -> str | None:
        """A text of the first rank's."""
        key = self._key()
        if self.rank == 0:
            self._store.set(key, value or "")
        return self._store.get(key).decode() or None

    def barrier(self) -> None:
        """Return when all have come here."""
        key = self._key()
        if self._store.add(f"{key}/count", 1) == self.size:
            self._store.set(key, "all")
        self._store.get(key)
