"""Who exchanges rows with whom: nodes. A node is one rank, or ranks that read each other's rows where they are.

The rows from one node to another are cut into lanes. Each rank of the sender has a share of the rows and sends it to
one rank of the receiver. So no rank leads, and a node has as many lanes as ranks. Received rows are there for the whole
node.

Numbers of nodes take the place of ranks in a plan: in ring offsets, rounds, received and sent rows. Nodes are numbered
by their first rank. If every node is one rank, these are the ranks.

A matrix of the node has the rows of all its ranks, one rank's after the other's. Each rank writes its own part, an
ordinary tensor, and gathers from the whole: no message, no copy, no buffer. Two meetings keep them apart. Before any
rank reads, all have written; before any rank writes again, all have read.

Matrices lie in an arena that all these ranks have alike: a matrix that no rank needs any more gives its memory to the
next ones, of any shape. All ranks take matrices in the same order, but their collectors of garbage may drop rows at
different moments. So each meeting tells which matrices a rank still holds, and what none holds is free from then on.
Thus ranks agree on the place of each matrix, which each meeting checks.
"""

import mmap
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from hpcgnn.comm import Communicator, Message
from hpcgnn.comm.communicator import NodeMemory
from hpcgnn.memory.arena import Arena, lent, rounded
from hpcgnn.memory.resident import mapped_bytes

#: The ledger's name for the seconds in meetings.
KIND = "intra_node"
# Own parts have an address, also where they have no rows.
_APART = 64


@dataclass(frozen=True, eq=False)
class NodeLayout:
    """How many rows each rank of a node has of a matrix. first: int of each rank, by place, and the number of all."""

    first: tuple[int, ...]
    place: int

    @property
    def own(self) -> slice:
        """This rank's rows of the whole."""
        return slice(self.first[self.place], self.first[self.place + 1])

    @property
    def num_own(self) -> int:
        return self.own.stop - self.own.start

    @property
    def num_rows(self) -> int:
        """Of all ranks of the node."""
        return self.first[-1]


class _Matrix:
    """A matrix of the node. place: (number of the piece of memory, first byte), the same on all ranks. held: whether
    anybody on this rank refers to its rows.
    """

    def __init__(
        self, place: tuple[int, int], memory: mmap.mmap, spread: NodeLayout, width: int, dtype: torch.dtype
    ) -> None:
        self.memory, self.spread, self.width, self.dtype = memory, spread, width, dtype
        self.place, self.number, self.held = place, (place[0] << 44) + place[1], True

    @staticmethod
    def nbytes(spread: NodeLayout, width: int, dtype: torch.dtype) -> int:
        """Bytes of a matrix in the arena."""
        return rounded(spread.num_rows * width * dtype.itemsize + _APART * (len(spread.first) - 1))

    def own(self) -> torch.Tensor:
        """This rank's rows."""
        spread, row = self.spread, self.width * self.dtype.itemsize
        start, nbytes = spread.own.start * row, spread.num_own * row
        if nbytes == 0:
            start, nbytes = spread.num_rows * row + _APART * spread.place, _APART
        shape = spread.num_own, self.width
        return lent(self.memory, self.place[1] + start, nbytes, self.dtype, shape, self._leave)

    def _leave(self) -> None:
        self.held = False

    def has(self, spread: NodeLayout, own: torch.Tensor) -> bool:
        """Whether a tensor in this rank's part is its rows, or some columns of them."""
        steps = [step for step, size in zip(own.stride(), own.shape, strict=True) if size > 1]
        wanted = [step for step, size in zip((self.width, 1), own.shape, strict=True) if size > 1]
        return spread is self.spread and len(own) == spread.num_own and steps == wanted

    def whole(self) -> torch.Tensor:
        """(rows of all ranks, width)."""
        count = self.spread.num_rows * self.width
        if count == 0:
            return torch.empty(0, self.width, dtype=self.dtype)
        found = torch.frombuffer(self.memory, dtype=self.dtype, count=count, offset=self.place[1])
        return found.view(-1, self.width)


class SharedRows:
    """The matrices of this rank's node. memory: NodeMemory.

    Everything is collective over the node, except where a method states otherwise.
    """

    def __init__(self, memory: NodeMemory) -> None:
        self.ranks, self.place, self._memory = memory.ranks, memory.place, memory
        self._arena = Arena(memory.allocate)
        self._by_address: dict[int, _Matrix] = {}  # whose memory is not free, in the order of all ranks
        self._spreads: dict[tuple[int, ...], NodeLayout] = {}
        self._common: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()

    def spread(self, num_rows: int) -> NodeLayout:
        """The NodeLayout of matrices with this number of own rows; the same one for the same rows."""
        first = [0]
        for rows in self._memory.gather(num_rows):
            first.append(first[-1] + rows)
        return self._spreads.setdefault(tuple(first), NodeLayout(tuple(first), self._memory.place))

    def gather(self, value: Any) -> list[Any]:
        """The small values of all ranks of the node, by place."""
        return self._memory.gather(value)

    def empty(self, spread: NodeLayout, width: int, dtype: torch.dtype) -> torch.Tensor:
        """Own rows (num_own, width), uninitialised. Their memory is free when no rank refers to them any more."""
        size = _Matrix.nbytes(spread, width, dtype)
        if self._by_address and max(self._arena.free_sizes(), default=0) < size:
            self.meet(-3)  # matrices may have been left since the last meeting
        number, start, memory = self._arena.reserve(size)
        matrix = _Matrix((number, start), memory, spread, width, dtype)
        own = matrix.own()
        self._by_address[own.untyped_storage().data_ptr()] = matrix
        return own

    @property
    def own_bytes(self) -> int:
        """This rank's share of the memory of all matrices, also of free memory. Local."""
        return self._arena.nbytes // len(self.ranks)

    def of_all(self, counts: Sequence[int]) -> Callable[[int, int, torch.dtype], torch.Tensor | None]:
        """For an Arena: gives matrices of these numbers of own rows, the same number of them on all ranks, and None for
        other numbers of rows. Numbers that two of them share on any rank are left out: ranks must decide alike.
        """
        spreads = {spread.first: spread for spread in map(self.spread, counts)}.values()
        sizes = [np.diff(spread.first) for spread in spreads]
        clear = {
            spread.num_own: spread
            for spread, mine in zip(spreads, sizes, strict=True)
            if sum(bool((mine == other).any()) for other in sizes) == 1
        }

        def make(rows: int, width: int, dtype: torch.dtype) -> torch.Tensor | None:
            return self.empty(clear[rows], width, dtype) if rows in clear else None

        return make

    def open(self, spread: NodeLayout, own: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(the rows of all ranks (num_rows, F), own rows (num_own, F) among them), where each rank gives its own ones.
        They stay until `close`, or longer where nobody writes over them: rows that `empty` gave are read as they are,
        others copied to such.
        """
        matrix = self._by_address.get(own.untyped_storage().data_ptr())
        if matrix is None or not matrix.has(spread, own):
            own = self.empty(spread, own.shape[1], own.dtype).copy_(own)
            matrix = self._by_address[own.untyped_storage().data_ptr()]
        self.meet(matrix.number)
        first = own.storage_offset()
        return matrix.whole()[:, first : first + own.shape[1]], own

    def trim(self) -> None:
        """Give back memory without references."""
        self.meet(-5)
        self._arena.trim()

    def foreign_bytes(self) -> int:
        """Resident bytes of other ranks that this process has touched: what is more than its share of the matrices and
        of common memory. The kernel counts them here too. Local.
        """
        of_rows = mapped_bytes(self._arena.pieces()) - self.own_bytes
        return max(0, of_rows) + mapped_bytes(self.common_storages().items()) - self.common_bytes()

    def close(self) -> None:
        """Wait until all ranks have read the opened matrix."""
        self.meet(-1)

    def meet(self, number: int) -> None:
        """Wait until all ranks are here. number: the same for all, which is checked."""
        matrices = list(self._by_address.items())
        held = self._memory.meet(number, KIND, [matrix.held for _, matrix in matrices])
        for (address, matrix), by_any in zip(matrices, held, strict=True):
            if not by_any:
                del self._by_address[address]
                self._arena.give_back(*matrix.place, matrix.nbytes(matrix.spread, matrix.width, matrix.dtype))

    def common(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        """Uninitialised numbers (count,) that all ranks read and write, for as long as any refers to them. count: the
        same for all.
        """
        if count == 0:
            return torch.empty(0, dtype=dtype)
        memory = self._memory.allocate(count * dtype.itemsize)
        self._common.add(memory)
        return torch.frombuffer(memory, dtype=dtype, count=count)

    def common_storages(self) -> dict[int, int]:
        """{address: bytes} of memory from `common` with references left. Local."""
        return {torch.frombuffer(each, dtype=torch.uint8).data_ptr(): len(each) for each in self._common}

    def common_bytes(self) -> int:
        """This rank's share of the resident bytes of it. Local."""
        return mapped_bytes(self.common_storages().items()) // len(self.ranks)

    def whole(self, spread: NodeLayout, values: torch.Tensor) -> torch.Tensor:
        """The values (num_rows,) of all ranks, of own ones (num_own,): for narrow things that are kept."""
        found = self.common(spread.num_rows, values.dtype)
        found[spread.own] = values
        self.meet(-4)
        return found


class Lanes(NamedTuple):
    """Rows from rank to rank, lane after lane. sender, receiver, rows: int64 (lanes,); no lane is without rows."""

    sender: np.ndarray
    receiver: np.ndarray
    rows: np.ndarray

    @property
    def starts(self) -> np.ndarray:
        """int64 (lanes + 1,): where each lane's rows begin among those of all, and the number of all."""
        return np.append(0, np.cumsum(self.rows))

    def leaving(self, rows: torch.Tensor, rank: int) -> list[Message]:
        """Of the rows of all lanes, those along the lanes that a rank sends, for the other end."""
        return self._messages(rows, self.sender == rank, self.receiver)

    def arriving(self, rows: torch.Tensor, rank: int) -> list[Message]:
        """Those along the lanes that a rank receives, likewise."""
        return self._messages(rows, self.receiver == rank, self.sender)

    def _messages(self, rows: torch.Tensor, chosen: np.ndarray, other: np.ndarray) -> list[Message]:
        parts, lanes = rows.split(self.rows.tolist()), np.flatnonzero(chosen).tolist()
        return [(int(other[lane]), parts[lane]) for lane in lanes]

    def by(self, ranks: np.ndarray, rank: int) -> tuple["Lanes", slice, np.ndarray]:
        """(the lanes by the rank at one end, `sender` or `receiver`; the rows of `rank` among theirs; int64, the places
        of these rows as the lanes are now).
        """
        order, starts = np.argsort(ranks, kind="stable"), self.starts
        lanes = Lanes(*(each[order] for each in self))
        own = slice(*lanes.starts[np.searchsorted(ranks[order], [rank, rank + 1])].tolist())
        mine = order[ranks[order] == rank]
        rows = self.rows[mine]
        return lanes, own, np.repeat(starts[mine] - np.cumsum(rows) + rows, rows) + np.arange(own.stop - own.start)


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
