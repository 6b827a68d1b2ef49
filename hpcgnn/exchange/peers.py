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

from hpcgnn.comm.communicator import Communicator, Message
from hpcgnn.exchange.nodes import NodeLayout, SharedRows


class Lanes(NamedTuple):
    """Rows from rank to rank, lane after lane. sender, receiver, rows: int64 (lanes,); no lane is without rows."""

    sender: np.ndarray
    receiver: np.ndarray
    rows: np.ndarray

    def messages(self, rows: torch.Tensor, rank: int, leave: bool) -> list[Message]:
        """Of the rows of all lanes, those that a rank sends (or receives), for the other end."""
        one, other = (self.sender, self.receiver) if leave else (self.receiver, self.sender)
        parts = rows.split(self.rows.tolist())
        return [(int(other[lane]), parts[lane]) for lane in np.flatnonzero(one == rank).tolist()]

    def by(self, ranks: np.ndarray, rank: int) -> tuple["Lanes", slice, np.ndarray]:
        """(the lanes by the rank at one end, `sender` or `receiver`; the rows of `rank` among theirs; int64, the places
        of these rows as the lanes are now).
        """
        order = np.argsort(ranks, kind="stable")
        mine, before = order[ranks[order] == rank], int(self.rows[ranks < rank].sum())
        rows, starts = self.rows[mine], np.cumsum(self.rows) - self.rows
        places = np.repeat(starts[mine] - np.cumsum(rows) + rows, rows) + np.arange(rows.sum())
        return Lanes(*(each[order] for each in self)), slice(before, before + len(places)), places


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
    number: of this rank's node; place: of this rank in it. rows: SharedRows of this node; None where it is this rank.
    """

    def __init__(
        self, members: np.ndarray, first: np.ndarray, number: int, place: int, rows: SharedRows | None = None
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
    def nodes(cls, rows: SharedRows, comm: Communicator) -> "Peers":
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

    def lanes(self, offset: np.ndarray, rows: np.ndarray, arrive: bool) -> Lanes:
        """The Lanes of rows that this node receives (or sends), in the order of the rows.

        offset, rows: int64 (m,), the ring offset of consecutive rows, and their number.
        """
        here, there = np.full(len(offset), self.number), (self.number + np.where(arrive, -offset, offset)) % self.size
        source, dest = (there, here) if arrive else (here, there)
        ranks = np.diff(self._first)
        lanes = ranks[source]
        number = np.repeat(np.arange(len(offset)), lanes)
        place, of = np.arange(len(number)) - np.repeat(np.cumsum(lanes) - lanes, lanes), rows[number]
        senders, source, dest = lanes[number], source[number], dest[number]
        share = of * (place + 1) // senders - of * place // senders
        sender = self._members[self._first[source] + place]
        receiver = self._members[self._first[dest] + place % ranks[dest]]
        some = share > 0
        return Lanes(sender[some].astype(np.int64), receiver[some].astype(np.int64), share[some])

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
        ranks = self.of(node)
        return ranks[-(-offset * len(ranks) // (self.size - 1)) - 1]

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

    def opened(self, columns: NodeLayout | None, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
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
