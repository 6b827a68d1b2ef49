"""torch.distributed between its start and its end, by the variables of torchrun, without an MPI."""

import contextlib
import json
import socket
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from hpcgnn import cores
from hpcgnn.comm.communicator import Communicator
from hpcgnn.comm.heartbeat import Heartbeat, HeartbeatBoard
from hpcgnn.comm.launcher import chosen_interface, place_without_mpi
from hpcgnn.comm.run import end_if_failed
from hpcgnn.comm.torch_transport import FOREVER, TorchCommunicator, gloo_communicator
from hpcgnn.errors import ConfigError
from hpcgnn.word_list import ranges

# Rank 0 gives up first, since it can say who is missing.
_SECONDS_FOR_RANK_0 = 5.0
# It then waits so long for those who came to read that.
_SECONDS_TO_HEAR = 1.0
_LOOPBACK = "127."


class StartedTorch:
    """torch.distributed with gloo, started; see `StartedMpi`. A subclass has another backend.

    Args:
        limit: seconds until all ranks must have come, 0 for no limit.
        failure: None, or (one line, its traceback) on a rank that could not start. Then no rank returns.
    """

    backend = "gloo"

    def __init__(self, limit: float, failure: tuple[str, str] | None = None) -> None:
        self._place = place_without_mpi()
        self.rank, self.size, self._limit = self._place.rank, self._place.size, limit
        self.binding, mistake = cores.Binding.of_this_rank(), None
        try:
            self.check()
        except ConfigError as error:
            mistake = str(error)
        with cores.all_used():
            self._store: Any = self._open_store()
            self.address, first = self._addresses()
            mine = {"node": self._place.node, "first": first, "failure": failure and failure[0], "mistake": mistake}
            said = self._meet(mine | {"cores": sorted(self.binding.cores), "main": sorted(self.binding.main)})
        end_if_failed(self.rank, [each["failure"] for each in said], failure)
        mistakes = [each["mistake"] for each in said if each["mistake"] is not None]
        if mistakes:
            raise ConfigError.on_all(mistakes[0])
        if self.address.startswith(_LOOPBACK):  # rank 0's node, whose name may lead to itself alone: others know it
            firsts = [each["first"] for each in said if not each["first"].startswith(_LOOPBACK)]
            self.address = firsts[0] if firsts else self.address
        near = [rank for rank, each in enumerate(said) if each["node"] == self._place.node]
        self.ranks_on_node, self.node = len(near), near[0]
        self.near = [cores.Binding(frozenset(said[rank]["cores"]), frozenset(said[rank]["main"])) for rank in near]
        self.board = HeartbeatBoard.of_node(near.index(self.rank), len(near), self._tell_node)

    def check(self) -> None:
        """Raise ConfigError where this torch or this machine does not have the backend."""

    def communicator(self, store: Any, heartbeat: Heartbeat) -> TorchCommunicator:
        """The verbs over a new process group. Collective. store: torch's, of all ranks."""
        return gloo_communicator(store, self.rank, self.size, self.address, heartbeat)

    def _open_store(self) -> Any:
        """torch's store of all ranks."""
        place, limit = self._place, self._limit + (_SECONDS_FOR_RANK_0 if self.rank else 0.0)
        if self.size == 1:
            return dist.HashStore()
        timeout = timedelta(seconds=limit) if self._limit else FOREVER
        try:
            store = dist.TCPStore(
                place.host, place.port, is_master=place.serves, wait_for_workers=False, timeout=timeout
            )
        except RuntimeError as error:
            raise self._unreachable(error) from error
        return dist.PrefixStore(place.job, store)

    def _unreachable(self, error: RuntimeError) -> ConfigError:
        place = self._place
        return ConfigError(
            f"rank {self.rank} of {self.size} on {place.node} cannot meet the others at {place.host}, port "
            f"{place.port}: {str(error).splitlines()[0]}; check that no firewall is between the nodes, and set "
            "MASTER_ADDR to an address of the node of rank 0 and MASTER_PORT to a free port of it"
        )

    def _addresses(self) -> tuple[str, str]:
        """Return (this node's address on the way to rank 0, rank 0's address as this node knows it)."""
        place = self._place
        if self.size == 1:
            return f"{_LOOPBACK}0.0.1", f"{_LOOPBACK}0.0.1"
        family, kind, protocol, _, address = socket.getaddrinfo(place.host, place.port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as way:
            way.connect(address)  # sends nothing
            return str(way.getsockname()[0]), str(way.getpeername()[0])

    def _meet(self, mine: dict[str, Any]) -> list[dict[str, Any]]:
        """The messages of all ranks. Collective. mine: of this rank, in JSON's types."""
        store, keys = self._store, [f"rank-{rank}" for rank in range(self.size)]
        try:
            store.set(keys[self.rank], json.dumps(mine))
            if self.rank == 0:
                said = self._missing(keys) or [json.loads(store.get(key)) for key in keys]
                store.set("all", json.dumps(said))
            said = json.loads(store.get("all"))
        except RuntimeError as error:
            raise self._unreachable(error) from error
        if isinstance(said, str):
            with contextlib.suppress(RuntimeError):
                store.set(f"heard-{self.rank}", "")
                if self.rank == 0:  # the store goes with this rank: others read the text before
                    heard = [f"heard-{rank}" for rank, key in enumerate(keys) if store.check([key])]
                    store.wait(heard, timedelta(seconds=_SECONDS_TO_HEAR))
            raise ConfigError.on_all(said)
        return said

    def _missing(self, keys: list[str]) -> str:
        """Wait for the messages of all ranks on rank 0. Return a text about those that have not come, or ''."""
        try:
            self._store.wait(keys)
        except RuntimeError:
            missing = [rank for rank, key in enumerate(keys) if not self._store.check([key])]
            return (
                f"rank {ranges(missing)} of {self.size} has not come to rank 0 ({self._place.node}) in {self._limit:g} "
                f"s (--watchdog); {self._place.by} announced {self.size} ranks"
            )
        return ""

    def _tell_node(self, text: str) -> str:
        """The text of the node's first rank, on all of the node."""
        key = f"node-{self.node}"
        if self.rank == self.node:
            self._store.set(key, text)
        return bytes(self._store.get(key)).decode()

    def transport(self, crowding: float, heartbeat: Heartbeat) -> Communicator:
        """The communicator of all ranks. Collective. Ranks that wait sleep, whether they share cores or not."""
        heartbeat.arrive("the first connections")
        try:
            made = self.communicator(self._store, heartbeat)
        except RuntimeError as error:
            raise ConfigError(
                f"rank {self.rank} of {self.size} finds no way to the other ranks by {self.backend} from "
                f"{self.address}: {str(error).splitlines()[0]}; check that no firewall is between the nodes, or choose "
                "another network (GLOO_SOCKET_IFNAME)"
            ) from error
        heartbeat.leave()
        return made

    def describe(self) -> str:
        """Describe the transport for people."""
        way = chosen_interface() or self.address
        return f"torch {torch.__version__}, {self.backend} over {way}; ranks started by {self._place.by}"

    def finish(self) -> None:
        """End in order. Collective."""
        if dist.is_initialized():
            dist.destroy_process_group()
        self._store = None
