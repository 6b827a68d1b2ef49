"""The halo plan: which rows go to whom, in which round, agreed once and used by every layer and epoch.

The *halo* of a rank is the set of other ranks' nodes that have an edge into it. It is ordered by ring offset and then
by the owner's order of the file. Each rank requests its rows from every owner once. Afterwards only rows travel, never
ids.

If ranks read each other's rows in the memory of their node, the halo and the plan belong to the node. A row of another
node that several of its ranks need crosses once (see peers.py). graph/transforms/within_node.py makes such a plan.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from hpcgnn import kernels
from hpcgnn.comm.communicator import Communicator, Message
from hpcgnn.errors import GraphError
from hpcgnn.exchange.nodes import NodeLayout, SharedRows
from hpcgnn.exchange.peers import Peers
from hpcgnn.exchange.rounds import Segment, Sides, cut, segments, within
from hpcgnn.exchange.send_matrix import SendMatrix

_MOST_INT32 = 2**31 - 1
# Keys that are grouped together.
_BLOCK = 1 << 16
#: (keys rising, their places int64, where these belong when all keys are grouped int64), of consecutive keys.
Places = tuple[np.ndarray, np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Neighbours:
    """Facts that the ranks of a node share, in one direction of the edges.

    Attributes:
        rows: SharedRows of the node.
        columns: NodeLayout of the streamed rows.
        returns: NodeLayout of the returns, for own rows, and then for the rows of others that this rank reads.
        taken: [(begin of another rank's returns for own rows, among the returns of all; int32 (m,): these own rows)].
    """

    rows: SharedRows
    columns: NodeLayout
    returns: NodeLayout
    taken: list[tuple[int, torch.Tensor]]

    def empty_returns(self, like: torch.Tensor) -> torch.Tensor:
        """Zeros, to which the returns for the rows that this rank reads are added. like: the total of own rows."""
        return self.rows.empty(self.returns, like.shape[1], like.dtype).zero_()

    def add_returns(self, total: torch.Tensor, returned: torch.Tensor) -> None:
        """Add the returns of all ranks of the node for own rows to total (n_p, R). returned: of `empty_returns`."""
        all_returned, _ = self.rows.open(self.returns, returned)
        total.add_(returned[: len(total)])
        for start, rows in self.taken:
            kernels.add_rows(total, rows, all_returned[start : start + len(rows)], distinct=True)


@dataclass(frozen=True)
class HaloPlan:
    """One direction of exchange, as one peer sees it. Index k-1 of an array belongs to ring offset k.

    Attributes:
        peers: Peers, each one rank or the ranks of a node.
        receive_counts, send_counts: int64 (size - 1,), rows received from peer - k, rows sent to peer + k.
        sending: the sent rows, offset after offset, in one object: a tensor for each of thousands of peers would take
            more than its few rows.
        rounds: the segments of each agreed round (see rounds.py).
        sizes: the rows of each round on the peer with most.
        starts: int64 (rounds + 1,), the halo position at each round.
        cap: most rows of a round.
        near: Neighbours, if a peer is a node whose ranks read each other's rows in place; else None.
    """

    peers: Peers
    receive_counts: np.ndarray
    send_counts: np.ndarray
    sending: SendMatrix
    rounds: list[tuple[Segment, ...]]
    sizes: list[int]
    starts: np.ndarray
    cap: int
    near: Neighbours | None

    @property
    def columns(self) -> NodeLayout | None:
        """Spread of the node's rows; None if a peer is one rank."""
        return None if self.near is None or self.peers.rows is None else self.near.columns

    @property
    def num_halo(self) -> int:
        return int(self.receive_counts.sum())

    @property
    def num_boundary(self) -> int:
        """Rows sent in one pass over the whole plan (a row wanted by two ranks counts twice)."""
        return self.sending.count

    @property
    def send_rows(self) -> torch.Tensor:
        """int32 (num_boundary,): the own rows that are sent, of a plan that sends rows as they are."""
        assert self.sending.sums is None, "sums of rows are no rows"
        return self.sending.rows

    @cached_property
    def _ends(self) -> tuple[np.ndarray, np.ndarray]:
        """int64 (P - 1,) each: the end of each ring offset's rows in the halo, and among the sent rows."""
        return np.cumsum(self.receive_counts), np.cumsum(self.send_counts)

    def rows_to(self, offset: int) -> torch.Tensor:
        """The own rows that go to the rank at this ring offset: int32 (m,)."""
        end = int(self._ends[1][offset - 1])
        return self.send_rows[end - int(self.send_counts[offset - 1]) : end]

    @property
    def longest_round(self) -> int:
        """Rows of the longest round, on the peer that receives or sends most in it."""
        return max(self.sizes, default=0)

    def arriving(self, segments: Sequence[Segment]) -> tuple[np.ndarray, np.ndarray]:
        """int64 (m,) each: the first, and one past the last, of the rows of each segment in the halo."""
        return within(segments, self.receive_counts, self._ends[0])

    def sent(self, segments: Sequence[Segment]) -> tuple[np.ndarray, np.ndarray]:
        """Likewise among all rows that this peer sends."""
        return within(segments, self.send_counts, self._ends[1])


def build_halo_plan(
    owner: np.ndarray,
    local_id: np.ndarray,
    cap: int,
    num_owned: int,
    comm: Communicator,
    place: Callable[[np.ndarray], np.ndarray] = lambda nodes: nodes,
) -> tuple[HaloPlan, np.ndarray]:
    """Agree on the halo of remote edge sources. Collective.

    Args:
        owner: int (E_remote,), the owning rank of each remote edge's source.
        local_id: int32 (E_remote,), its local id there; overwritten.
        cap: rows of a round.
        num_owned: number of own rows, to check requests.
        place: the places of own rows that are given as requests have them, of the same type.

    Returns:
        (plan, int32 or int64 (E_remote,): the halo position of each edge's source).

    Raises:
        GraphError: a rank asks an owner for a row that it does not have.
    """
    rank, size = comm.rank, comm.size
    offset_of = ((rank - np.arange(size)) % size).astype(np.min_scalar_type(size))

    def offsets(part: slice) -> np.ndarray:
        return offset_of[owner[part]]

    counts = count_keys(offsets, len(owner), size)
    ids = np.empty(len(owner), np.int64 if len(owner) > _MOST_INT32 else np.int32)
    for _, edges, places in grouped(offsets, len(owner), counts):
        ids[places] = local_id[edges]
    wanted, num_halo, ends = [np.zeros(0, np.int32)], 0, np.cumsum(counts)
    receive_counts = np.zeros(size, np.int64)
    for k in np.flatnonzero(counts).tolist():
        part = np.s_[ends[k] - counts[k] : ends[k]]
        rows, number = _numbered(ids[part])
        np.add(number, num_halo, out=ids[part], dtype=ids.dtype)
        wanted.append(rows)
        receive_counts[k] = len(rows)
        num_halo += len(rows)
    position = local_id if local_id.dtype == ids.dtype else np.empty_like(ids)
    for _, edges, places in grouped(offsets, len(owner), counts):
        position[edges] = ids[places]
    asked_for = torch.from_numpy(np.concatenate(wanted))
    del ids, wanted
    receive_counts = receive_counts[1:]

    send_rows, send_counts = _tell(comm, asked_for, receive_counts)
    del asked_for
    with comm.together("agreeing on the halo"):
        if len(send_rows) and not 0 <= int(send_rows.min()) <= int(send_rows.max()) < num_owned:
            raise GraphError(
                f"another rank asked for rows up to {int(send_rows.max())}, expected 0..{num_owned - 1}: the ranks "
                "read different graphs or maps; give all of them the same file"
            )

    send_rows = torch.from_numpy(place(send_rows.numpy()))
    peers = Peers.alone(rank, size)
    return agreed_plan(peers, receive_counts, send_counts, SendMatrix(send_rows), cap, comm), position


def agreed_plan(
    peers: Peers,
    receive_counts: np.ndarray,
    send_counts: np.ndarray,
    sending: SendMatrix,
    cap: int,
    comm: Communicator,
    near: Neighbours | None = None,
) -> HaloPlan:
    """The HaloPlan for these counts of this peer (see there), in rounds of at most `cap` rows. Collective."""
    # Each row that is sent at an offset is received there by another rank. A trial on one rank has no other, and counts
    # its sent rows too.
    max_rows = torch.from_numpy(np.maximum(receive_counts, send_counts))
    comm.allreduce_(max_rows, "plan", "max")
    most = torch.tensor([max(receive_counts.sum(), send_counts.sum())])
    comm.allreduce_(most, "plan", "max")
    offsets = [np.flatnonzero(counts) for counts in (receive_counts, send_counts)]
    mine = Sides(
        np.repeat(np.arange(2), [len(each) for each in offsets]),
        1 + np.concatenate(offsets),
        np.concatenate([receive_counts[offsets[0]], send_counts[offsets[1]]]),
        2,
        peers.size,
    )

    def furthest(place: int, cap: int) -> int:
        return int(comm.allreduce_(torch.tensor([mine.furthest(place, cap)]), "plan", "min"))

    stops = cut(furthest, int(most), cap, peers.size)
    sizes = comm.allreduce_(torch.from_numpy(mine.sizes(stops)), "plan", "max")
    rounds = segments(stops, max_rows.tolist())
    _, ends = within([round_[-1] for round_ in rounds], receive_counts, np.cumsum(receive_counts))
    return HaloPlan(peers, receive_counts, send_counts, sending, rounds, sizes.tolist(), np.append(0, ends), cap, near)


def gather_halo(plan: HaloPlan, values: torch.Tensor, comm: Communicator) -> torch.Tensor:
    """The owners' values (num_halo,) of all halo rows, in halo order, and 1 for sums of rows: a whole halo in memory,
    so for narrow things only. Collective.

    values: (n_p,) own values of any dtype.
    """
    peers, halo = plan.peers, plan.peers.common(plan.num_halo, values.dtype)
    values, held = peers.opened(plan.columns, values)
    offsets = np.arange(1, peers.size)
    out, come = peers.lanes(offsets, plan.send_counts, False), peers.lanes(offsets, plan.receive_counts, True)
    outgoing = out.messages(plan.sending.factors(values), peers.rank, True)
    incoming = come.messages(halo, peers.rank, False)
    comm.exchange(outgoing, incoming, "plan").finish()
    peers.meet(-3)
    del held  # all have read it
    return halo


def parts(counts: np.ndarray) -> Iterator[tuple[int, int, int]]:
    """(ring offset, its first row, its rows) of the offsets with rows."""
    ends = np.cumsum(counts)
    return ((k + 1, int(ends[k] - counts[k]), int(counts[k])) for k in np.flatnonzero(counts).tolist())


def of_offsets(counts: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """int64 (P - 1,): the number of chosen rows, bool, of each ring offset, which has `counts`."""
    before, ends = np.append(0, np.cumsum(chosen)), np.cumsum(counts)
    return before[ends] - before[ends - counts]


def _numbered(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(the different ones, increasing int32; the place of each id among them): by a table where ids are dense."""
    most = int(ids.max()) + 1
    if most > 8 * len(ids):
        found, place = np.unique(ids, return_inverse=True)
        return found.astype(np.int32), place
    there = np.zeros(most, bool)
    there[ids] = True
    return np.flatnonzero(there).astype(np.int32), (np.cumsum(there, dtype=np.int32) - 1)[ids]


def _tell(comm: Communicator, wanted: torch.Tensor, counts: np.ndarray) -> tuple[torch.Tensor, np.ndarray]:
    """Request rows from each owner: int32, `counts` at each ring offset of the owner. Collective.

    Returns (the own rows that others want, the number of them at each ring offset).
    """
    offsets = np.arange(1, comm.size)
    sources, dests = (comm.rank - offsets) % comm.size, (comm.rank + offsets) % comm.size
    numbers = np.zeros(comm.size, np.int64)
    numbers[sources] = counts
    asked = comm.alltoall(torch.from_numpy(numbers), "plan").numpy()[dests]
    told = torch.empty(int(asked.sum()), dtype=torch.int32)

    def messages(ranks: np.ndarray, values: torch.Tensor, of_each: np.ndarray) -> list[Message]:
        return [(int(ranks[k - 1]), values[first : first + count]) for k, first, count in parts(of_each)]

    comm.exchange(messages(sources, wanted, counts), messages(dests, told, asked), "plan").finish()
    return told, asked


def count_keys(key: Callable[[slice], np.ndarray], length: int, num_keys: int) -> np.ndarray:
    """int64 (num_keys,): the count of each key.

    key(slice) -> these keys, int; two bytes sort in a tenth of the time of eight. length: number of all of them.
    """
    counts = np.zeros(num_keys, np.int64)
    for first in range(0, length, _BLOCK):
        counts += np.bincount(key(np.s_[first : min(first + _BLOCK, length)]), minlength=num_keys)
    return counts


def grouped(key: Callable[[slice], np.ndarray], length: int, counts: np.ndarray) -> Iterator[Places]:
    """The sorted places of all keys, some at a time, stable. counts: see `count_keys`."""
    ends = np.cumsum(counts) - counts
    for first in range(0, length, _BLOCK):
        keys = key(np.s_[first : min(first + _BLOCK, length)])
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        firsts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
        number = np.diff(np.append(firsts, len(keys)))
        yield keys, first + order, np.repeat(ends[keys[firsts]] - firsts, number) + np.arange(len(order))
        ends[keys[firsts]] += number
