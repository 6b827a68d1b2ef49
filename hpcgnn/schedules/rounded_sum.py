"""Sums over ranks of numbers that travel as bf16 and are added in fp32, in the order of the ranks.

Each rank adds up a share of the numbers. All send it their rounded numbers, and it sends back the sum, rounded once
more. So a number takes two bytes where an all-reduce takes four. It errs by two roundings (2⁻⁹ of its size each) at any
number of ranks; sums in bf16 would err by one for each rank. All ranks end with the same bits.

The second half can begin only when the first has arrived. Nobody waits for that inside of a backward pass. It begins
with the next sum if it can, and otherwise when the sums are needed. All ranks keep to the order of the sums, since
messages of a kind arrive in order.
"""

import torch

from hpcgnn.comm import Communicator
from hpcgnn.comm.communicator import Exchange


class RoundedSums:
    """Begins sums, one after another, and sees to their second halves. kind: of all their traffic, in the ledger."""

    def __init__(self, comm: Communicator, kind: str) -> None:
        self._comm, self._kind, self._halfway = comm, kind, list[_Sum]()

    def begin_(self, numbers: torch.Tensor) -> Exchange:
        """Begin to sum fp32 numbers (n,) in place, as `begin_sum_` of a communicator does.

        If `exchange` is not pairwise, the whole sum is a call that ranks make in the same order as all others.
        """
        self.advance(wait=False)
        self._halfway.append(_Sum(self._comm, numbers, self._kind, self))
        return self._halfway[-1]

    def advance(self, wait: bool) -> None:
        """Begin the second halves of all sums whose first halves have arrived; with `wait`, of all."""
        while self._halfway and (wait or self._halfway[0].halfway()):
            self._halfway.pop(0).send_back()


class _Sum(Exchange):
    """One sum: the sent numbers, the received numbers of each rank, and then the sums, all (P, share) of bf16."""

    def __init__(self, comm: Communicator, numbers: torch.Tensor, kind: str, sums: RoundedSums) -> None:
        self._comm, self._numbers, self._kind, self._sums = comm, numbers, kind, sums
        shape = comm.size, -(-len(numbers) // comm.size)  # equal shares: the last ones end with zeros
        self._given = torch.zeros(shape, dtype=torch.bfloat16)
        self._given.view(-1)[: len(numbers)] = numbers
        self._come, self._through = torch.empty_like(self._given), False
        self._come[comm.rank] = self._given[comm.rank]
        self._others = [(comm.rank + offset) % comm.size for offset in range(1, comm.size)]
        self._way = self._exchange([self._given[rank] for rank in self._others], self._come, kind)

    def _exchange(self, outgoing: list[torch.Tensor], incoming: torch.Tensor, kind: str) -> Exchange:
        with self._comm.ledger.booked_as(self._kind):
            come = [(rank, incoming[rank]) for rank in self._others]
            under_way = self._comm.exchange(list(zip(self._others, outgoing, strict=True)), come, kind)
        under_way.progress()
        return under_way

    def halfway(self) -> bool:
        """Whether all that is to be added is here; looks and does not wait."""
        return self._way.arrived()

    def send_back(self) -> None:
        """Wait for the first half, add, and begin the second."""
        self._wait()
        total = self._come[0].float()
        for come in self._come[1:]:
            total += come
        self._come[self._comm.rank] = total
        mine, self._through = self._come[self._comm.rank], True
        self._way = self._exchange([mine] * len(self._others), self._come, f"{self._kind} back")

    def _wait(self) -> None:
        with self._comm.ledger.booked_as(self._kind):
            self._way.finish()

    def arrived(self) -> bool:
        return self._through and self._way.arrived()

    def finish_receiving(self) -> None:
        self._sums.advance(wait=True)
        self._wait()
        self._numbers.copy_(self._come.view(-1)[: len(self._numbers)])

    def finish_sending(self) -> None:
        """It is through when all has come."""
