"""A communicator without other ranks: one rank of many, tried out by itself.

The other ranks count as equal to this one. Received messages are copies of sent ones, so that masks have as many nodes
there as here; only requested rows must exist. Sent messages are counted as on a real transport.
"""

import mmap
from collections.abc import Sequence
from typing import Any

import torch

from hpcgnn.comm.communicator import Communicator, Exchange, Finished, Message
from hpcgnn.comm.heartbeat import Heartbeat
from hpcgnn.comm.ledger import Ledger


class GhostCommunicator(Communicator):
    """Rank 0 of `size`. Not collective, since there are no others.

    Attributes:
        wanted: {rank: int32 tensor}, owned rows that others request for a halo plan, if not as many as this rank
            requests.
        summed: a Ledger of sums alone.
    """

    def __init__(self, size: int) -> None:
        self.rank, self.size, self.ledger, self.heartbeat = 0, size, Ledger(), Heartbeat()
        self.summed = Ledger()
        self.wanted: dict[int, torch.Tensor] = {}
        self._told: set[int] = set()  # ranks that have sent their number of requested rows, and not yet the rows
        self._columns = 1  # own nodes that have a number

    def exchange(self, outgoing: list[Message], incoming: list[Message], kind: str) -> Exchange:
        sent, received = (sum(tensor.nbytes for _, tensor in messages) for messages in (outgoing, incoming))
        if outgoing or incoming:
            self.ledger.add(kind, messages=len(outgoing), bytes_sent=sent, bytes_received=received)
        given = dict(outgoing)
        for rank, tensor in incoming:
            self._make_up(rank, tensor, given.get((self.size - rank) % self.size), kind)
        return Finished()

    def alltoall(self, numbers: torch.Tensor, kind: str) -> torch.Tensor:
        self.ledger.add(kind, messages=1, bytes_sent=numbers.nbytes, bytes_received=numbers.nbytes)
        result = torch.cat([numbers[:1], numbers[1:].flip(0)])
        for rank, rows in self.wanted.items():
            result[rank] = len(rows)
        self._told = {int(rank) for rank in result.nonzero()}
        return result

    def _make_up(self, rank: int, tensor: torch.Tensor, given: torch.Tensor | None, kind: str) -> None:
        """Make up a message from a rank. given: this rank's message to the rank at the same distance in the other
        direction.
        """
        numbers = kind == "plan" and tensor.dtype == torch.int32
        if numbers and rank in self._told:
            self._told.remove(rank)
            rows = self.wanted.get(rank)
            tensor.copy_(torch.arange(len(tensor)) % self._columns if rows is None else rows)
        elif given is None or not given.numel() or _torn(given, tensor):
            tensor.fill_(tensor.dtype.is_floating_point)
        else:
            tensor.copy_(_mirrored(given, tensor))
            if numbers:  # of nodes that are there, and -1: here they are all different
                self._columns = 1 + int(given.max())
                there = tensor >= 0
                tensor[there] = torch.arange(int(there.sum()), dtype=torch.int32)

    def allreduce_(self, tensor: torch.Tensor, kind: str, op: str = "sum") -> torch.Tensor:
        if tensor.numel():
            tensor.copy_(torch.empty_like(tensor).copy_(tensor))  # a transport's copies
            for ledger in (self.ledger, self.summed):
                ledger.add(kind, messages=1, bytes_sent=tensor.nbytes, bytes_received=tensor.nbytes)
        return tensor

    def allgather_object(self, value: Any) -> list[Any]:
        self.ledger.add("control", messages=2, bytes_sent=8 + len(self.to_bytes(value)))  # how long it is, and itself
        return [value] * self.size

    def gather_object(self, value: Any, root: int = 0) -> list[Any]:
        return self.allgather_object(value)

    def broadcast_(self, tensor: torch.Tensor, root: int, kind: str) -> torch.Tensor:
        return tensor


class GhostMemory:
    """The memory of a node of which nobody but this rank is there."""

    ranks, place = [0], 0

    def allocate(self, nbytes: int) -> mmap.mmap:
        """See NodeMemory."""
        return mmap.mmap(-1, max(nbytes, 1))

    def gather(self, value: Any) -> list[Any]:
        """See NodeMemory."""
        return [value]

    def meet(self, number: int, kind: str, held: Sequence[bool]) -> list[bool]:
        """Nobody has to be waited for."""
        return list(held)

    def close(self) -> None:
        """Nothing is there to be freed."""


def _torn(own: torch.Tensor, like: torch.Tensor) -> bool:
    """Return whether copying would cut or repeat this rank's message.

    The parts of narrowed rows (exchange/wire.py) would then be mixed up, and computed with as invalid numbers.
    """
    return own.dtype == torch.uint8 and own.numel() != like.numel()


def _mirrored(own: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """The own values over and over, as many as there are in `like`."""
    times = -(-like.numel() // own.numel())
    return own.reshape(-1).repeat(times)[: like.numel()].view(like.shape)
