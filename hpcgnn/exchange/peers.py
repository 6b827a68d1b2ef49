"""Nodes exchange rows with each other. A node is one rank, or ranks that read each other's rows where they are.

The rows from one node to another are cut into lanes. Each rank of the sender has a lane, and sends it to one rank of
the receiver. So no rank leads. All ranks of the receiver read the rows that arrive.

A plan has numbers of nodes in the place of ranks: in ring offsets, rounds, and counts of rows. Nodes are numbered by
their first ranks. Where every node is one rank, the numbers are the ranks.
"""

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch

from hpcgnn.comm import Communicator
from hpcgnn.exchange.node_rows import NodeRows, Spread


class Lane(NamedTuple):
    """Rows start..stop (half open) from one node to the node at a ring offset, and the ranks at both ends."""

    offset: int
    start: int
    stop: int
    sender: int
    receiver: int

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return self.stop - self.start


class Peers:
    """The nodes, as one rank sees them.

    members: int32 (P,), the ranks, one node after the other; first: int64 (N + 1,), the place of each node's first rank
    among them, and P. number: of this rank's node; place: of this rank in its node. rows: NodeRows of this node, or
    None if every node is one rank.
    """

    def __init__(
        self, members: np.ndarray, first: np.ndarray, number: int, place: int, rows: NodeRows | None = None
    ) -> None:
        self._members, self._first = members, first
        self.number, self.place, self.rows = number, place, rows
        self.size = len(first) - 1
        self.ranks = self.of(number)
        self.rank = self.ranks[place]
        #: Ranks of the smallest node, whose buffers have room for the fewest rows.
        self.fewest = int(np.diff(first).min())

    @classmethod
    def alone(cls, rank: int, size: int) -> "Peers":
        """Every rank is a node."""
        return cls(np.arange(size, dtype=np.int32), np.arange(size + 1), rank, 0)

    @classmethod
    def nodes(cls, rows: NodeRows, comm: Communicator) -> "Peers":
        """The nodes whose ranks read each other's rows. Collective."""
        leader = np.array(comm.allgather_object(rows.ranks[0]))
        members = np.argsort(leader, kind="stable").astype(np.int32)
        leaders, counts = np.unique(leader, return_counts=True)
        number = int(np.searchsorted(leaders, rows.ranks[0]))
        return cls(members, np.append(0, np.cumsum(counts)), number, rows.place, rows)

    def of(self, node: int) -> list[int]:
        """The ranks of a node, ascending."""
        return [int(rank) for rank in self._members[self._first[node] : self._first[node + 1]]]

    def source(self, offset: int) -> int:
        """The node that rows of this ring offset come from."""
        return (self.number - offset) % self.size

    def dest(self, offset: int) -> int:
        """The node that rows of this ring offset go to."""
        return (self.number + offset) % self.size

    def offsets(self) -> np.ndarray:
        """int64 (P,): for each rank, the ring offset at which this node receives from the rank's node; 0: its own."""
        found = np.empty(len(self._members), np.int64)
        nodes = np.repeat(np.arange(self.size), np.diff(self._first))
        found[self._members] = (self.number - nodes) % self.size
        return found

    def incoming(self, offset: int, start: int, rows: int) -> list[Lane]:
        """The lanes of the `rows` rows from `start` on that this node receives at a ring offset, in their order."""
        return self._lanes(offset, start, rows, self.source(offset), self.number)

    def outgoing(self, offset: int, start: int, rows: int) -> list[Lane]:
        """The lanes of rows that this node sends at a ring offset, likewise."""
        return self._lanes(offset, start, rows, self.number, self.dest(offset))

    def _lanes(self, offset: int, start: int, rows: int, source: int, dest: int) -> list[Lane]:
        senders, receivers = self.of(source), self.of(dest)
        turned = offset % len(senders)  # so that no rank has the odd rows of all offsets
        senders = senders[turned:] + senders[:turned]
        cuts = [start + rows * place // len(senders) for place in range(len(senders) + 1)]
        return [
            Lane(offset, first, last, sender, receivers[place % len(receivers)])
            for place, (sender, (first, last)) in enumerate(zip(senders, pairwise(cuts), strict=True))
            if last > first
        ]

    def sums(self, values: np.ndarray) -> np.ndarray:
        """(N,): the sum of the values (P,) of the ranks of each node."""
        return np.add.reduceat(values[self._members], self._first[:-1])

    # --- planning together --------------------------------------------------------------------------------------------

    def planned(self, place: int) -> range:
        """The ring offsets at which this node receives, as far as the rank at this place plans them. The rank also
        plans the rows to the same nodes, which go at the opposite offsets.
        """
        others = self.size - 1
        return range(1 + place * others // len(self.ranks), 1 + (place + 1) * others // len(self.ranks))

    def planner(self, node: int, offset: int) -> int:
        """The rank of a node that plans the rows which this node receives at a ring offset."""
        ranks, others = self.of(node), self.size - 1
        ends = [(place + 1) * others // len(ranks) for place in range(len(ranks))]
        return ranks[int(np.searchsorted(ends, offset - 1, side="right"))]

    def gather(self, value: Any) -> list[Any]:
        """The small values of all ranks of the node, by place. Collective over the node."""
        return [value] if self.rows is None else self.rows.gather(value)

    def joined(self, part: torch.Tensor, descending: bool = False) -> torch.Tensor:
        """The parts (m,) that the ranks of the node have, one after another, in memory that they share: by place, or by
        place from the last one. Collective over the node.
        """
        if self.rows is None:
            return part
        sizes = self.gather(len(part))
        before = sizes[self.place + 1 :] if descending else sizes[: self.place]
        whole = self.rows.common(sum(sizes), part.dtype)
        whole[sum(before) : sum(before) + len(part)] = part
        self.meet(-2)
        return whole

    # --- shared memory ------------------------------------------------------------------------------------------------

    def opened(self, columns: Spread | None, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(the values (num_rows,) of all rows of the node, a tensor to hold while they are read), from own values
        (n_p,). Collective over the node.
        """
        if self.rows is None or columns is None:
            return values, values
        found, own = self.rows.open(columns, values.contiguous().view(-1, 1))
        return found.reshape(-1), own

    def common(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        """Uninitialised numbers (count,) for values that arrive for the node. Collective over the node."""
        return torch.empty(count, dtype=dtype) if self.rows is None else self.rows.common(count, dtype)

    def meet(self, number: int) -> None:
        """Wait until all ranks of the node are here. Then all can read the memory that each has received or written
        before. number: the same for all, which is checked. Collective over the node.
        """
        if self.rows is not None:
            self.rows.meet(number)
