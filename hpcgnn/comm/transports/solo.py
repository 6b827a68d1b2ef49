"""One rank without MPI: for tests, for tools, and for the probe before the memory baseline."""

from typing import Any

import torch

from hpcgnn.comm.communicator import Communicator, Exchange, Finished, Message
from hpcgnn.comm.health.heartbeat import Heartbeat
from hpcgnn.comm.ledger import Ledger


class SoloCommunicator(Communicator):
    """One rank without MPI. Nothing is ever sent, and the ledger stays empty."""

    def __init__(self) -> None:
        self.rank, self.size, self.ledger, self.heartbeat = 0, 1, Ledger(), Heartbeat()

    def exchange(self, outgoing: list[Message], incoming: list[Message], kind: str) -> Exchange:
        assert not outgoing and not incoming, "one rank has nobody to exchange with"
        return Finished()

    def alltoall(self, numbers: torch.Tensor, kind: str) -> torch.Tensor:
        return numbers.clone()

    def allreduce_(self, tensor: torch.Tensor, kind: str, op: str = "sum") -> torch.Tensor:
        return tensor

    def allgather_object(self, value: Any) -> list[Any]:
        return [value]

    def gather_object(self, value: Any, root: int = 0) -> list[Any]:
        return [value]

    def broadcast_object(self, value: Any, root: int = 0) -> Any:
        return value

    def broadcast_(self, tensor: torch.Tensor, root: int, kind: str) -> torch.Tensor:
        return tensor
