"""Who exchanges rows with whom: nodes. A node is one rank, or ranks that read each other's rows where they are.

The rows from one node to another are cut into lanes. Each rank of the sender has a share of the rows and sends it to
one rank of the receiver. So no rank leads, and a node has as many lanes as ranks. Received rows are there for the whole
node.

Numbers of nodes take the place of ranks in a plan: in ring offsets, rounds, received and sent rows. Nodes are numbered
by their first rank. If every node is one rank, these are the ranks.
"""

from typing import Any, NamedTuple

import numpy as np
import torch

from hpcgnn.comm import Communicator
from hpcgnn.exchange.node_rows import NodeRows, Spread


class Lane(NamedTuple):
    """Rows start..stop (half open) from one node to the one at a ring offset, and the ranks at its ends."""

    offset: int
    start: int
    stop: int
    sender: int
    receiver: int

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return self.stop - self.start


def cap_of_nodes(cap: int, fewest: int, returns: bool, widens: bool) -> int:
    """The rows of a round between nodes, for buffers that together are as large as the buffers of its ranks.

    Each rank of a node adds returns and widens rows in memory of its own.

    Args:
        cap: rows of a round between single ranks.
        fewest: ranks of the node that has fewest.
        returns: whether anything returns to the rows.
        widens: whether rows are narrowed on their way.
    """
    if widens:
        return cap
    return 2 * fewest * cap // (1 + fewest) if returns else fewest * cap


class Peers:
    """The nodes, as one rank sees them.

    members: int32 (P,), the ranks, node after node; first: int64 (N + 1,), where each node's begin.
    number: of this rank's node; place: of this rank in it. rows: NodeRows of this node; None where it is this rank.
    """

    def __init__(
        self, members: np.ndarray, first: np.ndarray, number: int, place: int, rows: NodeRows | None = None
    ) -> None:
        self._members, self._first = members, first
        self.number, self.place, self.rows = number, place, rows
        self.size = len(first) - 1
        self.ranks = self.of(number)
        self.rank = self.ranks[place]
        #: Ranks of the node that has fewest: what a buffer may take on every node.
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
        """int64 (P,): by rank, the ring offset of the node that it is of, from which this node receives; 0: its own."""
        found = np.empty(len(self._members), np.int64)
        nodes = np.repeat(np.arange(self.size), np.diff(self._first))
        found[self._members] = (self.number - nodes) % self.size
        return found

    def incoming(self, offset: int, start: int, rows: int) -> list[Lane]:
        """The lanes of rows from `start` on that this node receives at a ring offset, in the order of the rows."""
        return self._lanes(offset, start, rows, self.source(offset), self.number)

    def outgoing(self, offset: int, start: int, rows: int) -> list[Lane]:
        """The lanes of rows that this node sends at a ring offset, likewise."""
        return self._lanes(offset, start, rows, self.number, self.dest(offset))

    def _lanes(self, offset: int, start: int, rows: int, source: int, dest: int) -> list[Lane]:
        if rows == 0:
            return []
        senders, receivers = self.of(source), self.of(dest)
        cuts = [start + rows * place // len(senders) for place in range(len(senders) + 1)]
        return [
            Lane(offset, first, last, sender, receivers[place % len(receivers)])
            for place, (sender, first, last) in enumerate(zip(senders, cuts, cuts[1:], strict=False))
            if last > first
        ]

    def sums(self, values: np.ndarray) -> np.ndarray:
        """(N,): the sum of the values (P,) of the ranks of each node."""
        return np.add.reduceat(values[self._members], self._first[:-1])

    # --- what the ranks of a node plan together -----------------------------------------------------------------------

    def planned(self, place: int) -> range:
        """The ring offsets of receiving that the rank at this place plans for its node: with the nodes they come
        from. It plans the rows to these nodes as well, at the opposite offsets.
        """
        others = self.size - 1
        return range(1 + place * others // len(self.ranks), 1 + (place + 1) * others // len(self.ranks))

    def planner(self, node: int, offset: int) -> int:
        """The rank of a node that plans the rows received at a ring offset."""
        ranks, others = self.of(node), self.size - 1
        ends = [(place + 1) * others // len(ranks) for place in range(len(ranks))]
        return ranks[int(np.searchsorted(ends, offset - 1, side="right"))]

    def gather(self, value: Any) -> list[Any]:
        """The small values of all ranks of the node, by place. Collective over the node."""
        return [value] if self.rows is None else self.rows.gather(value)

    def joined(self, part: torch.Tensor, descending: bool = False) -> torch.Tensor:
        """The parts (m,) of the node's ranks, one after another, in shared memory. Collective over the node.

        They are in the order of the ranks' places, or from the last place.
        """
        if self.rows is None:
            return part
        sizes = self.gather(len(part))
        before = sizes[self.place + 1 :] if descending else sizes[: self.place]
        whole = self.rows.common(sum(sizes), part.dtype)
        whole[sum(before) : sum(before) + len(part)] = part
        self.meet(-2)
        return whole

    # --- what they share ----------------------------------------------------------------------------------------------

    def opened(self, columns: Spread | None, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(the values (num_rows,) of all rows of the node, a reference to hold while they are read).

        values: own ones (n_p,). Collective over the node.
        """
        if self.rows is None or columns is None:
            return values, values
        found, own = self.rows.open(columns, values.contiguous().view(-1, 1))
        return found.reshape(-1), own

    def common(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        """Uninitialised numbers (count,) for arriving rows of the node. Collective over the node."""
        return torch.empty(count, dtype=dtype) if self.rows is None else self.rows.common(count, dtype)

    def meet(self, number: int) -> None:
        """Wait until all ranks of the node are here: then all received or written numbers can be read. Collective over
        the node. number: checked to be the same on all.
        """
        if self.rows is not None:
            self.rows.meet(number)
