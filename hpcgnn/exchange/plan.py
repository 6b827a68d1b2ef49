"""The halo plan: which rows go to whom, in which round, agreed once and used by every layer and epoch.

The *halo* of a rank is the set of other ranks' nodes that have an edge into it, ordered by ring offset and then by the
owner's order of the file. Each rank tells every owner once which of its rows it wants; afterwards only rows travel,
never ids.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from hpcgnn.comm import Communicator
from hpcgnn.exchange.grouping import count_keys, grouped
from hpcgnn.exchange.rounds import Segment, longest, rounds

_MOST_INT32 = 2**31 - 1


@dataclass(frozen=True)
class HaloPlan:
    """One direction of exchange, as one rank sees it. Index k-1 of a list belongs to ring offset k.

    rank, size: of this rank. receive_rows: rows received from rank - k. send_rows: int32 tensors, own rows sent to rank
    + k.
    rounds: the agreed list of rounds (see rounds.py). starts: int64 (rounds + 1,), this rank's halo position at each
    round.
    """

    rank: int
    size: int
    receive_rows: list[int]
    send_rows: list[torch.Tensor]
    rounds: list[tuple[Segment, ...]]
    starts: np.ndarray

    @property
    def num_halo(self) -> int:
        return sum(self.receive_rows)

    @property
    def num_boundary(self) -> int:
        """Rows sent in one pass over the whole plan (a row wanted by two ranks counts twice)."""
        return sum(len(rows) for rows in self.send_rows)

    @property
    def longest_round(self) -> int:
        """Rows of the longest round, on the rank that receives most in it."""
        return longest(self.rounds)

    def num_received(self, segments: Iterable[Segment]) -> int:
        """How many rows of these segments this rank receives."""
        return sum(self.received(segment) for segment in segments)

    def source(self, offset: int) -> int:
        """The rank that rows of this ring offset come from."""
        return (self.rank - offset) % self.size

    def dest(self, offset: int) -> int:
        """The rank that own rows of this ring offset go to."""
        return (self.rank + offset) % self.size

    def received(self, segment: Segment) -> int:
        """How many rows of a segment this rank receives."""
        return _overlap(segment, self.receive_rows[segment.offset - 1])

    def sent(self, segment: Segment) -> torch.Tensor:
        """The own rows of a segment that this rank sends: int32 (m,)."""
        rows = self.send_rows[segment.offset - 1]
        return rows[segment.start : segment.start + _overlap(segment, len(rows))]


def _overlap(segment: Segment, rows: int) -> int:
    return max(0, min(segment.stop, rows) - segment.start)


class Order(Protocol):
    """A LocalOrder, as far as a plan needs it."""

    def of(self, nodes: np.ndarray) -> np.ndarray:
        """The places of own nodes given in the order of the file, of the same type."""


def build_halo_plan(
    owner: np.ndarray, local_id: np.ndarray, cap: int, num_owned: int, comm: Communicator, order: Order
) -> tuple[HaloPlan, np.ndarray]:
    """Agree on the halo of remote edge sources. Collective.

    owner: int (E_remote,), the owning rank of each remote edge's source; local_id: int32 (E_remote,), its local id
    there, which is overwritten. cap: rows of a round. num_owned: own rows, to check what others ask for. order:
    LocalOrder of own rows, by whose places in the order of the file they are asked for. Returns (plan, int32 or int64
    (E_remote,): the halo position of each edge's source).
    """
    rank, size = comm.rank, comm.size
    offset_of = ((rank - np.arange(size)) % size).astype(np.min_scalar_type(size))

    def offsets(part: slice) -> np.ndarray:
        return offset_of[owner[part]]

    counts = count_keys(offsets, len(owner), size)
    ids = np.empty(len(owner), np.int64 if len(owner) > _MOST_INT32 else np.int32)
    for _, edges, places in grouped(offsets, len(owner), counts):
        ids[places] = local_id[edges]
    wanted, num_halo, ends = [np.zeros(0, np.int32)] * size, 0, np.cumsum(counts)
    for k in np.flatnonzero(counts).tolist():
        part = np.s_[ends[k] - counts[k] : ends[k]]
        wanted[k], place = _numbered(ids[part])
        np.add(place, num_halo, out=ids[part], dtype=ids.dtype)
        num_halo += len(wanted[k])
    position = local_id if local_id.dtype == ids.dtype else np.empty_like(ids)
    for _, edges, places in grouped(offsets, len(owner), counts):
        position[edges] = ids[places]
    del ids
    receive_rows = [len(rows) for rows in wanted[1:]]

    max_rows = torch.tensor(receive_rows, dtype=torch.int64)
    comm.allreduce_(max_rows, "plan", "max")
    agreed = rounds(max_rows.tolist(), cap)

    send_rows = _tell(comm, [torch.from_numpy(rows) for rows in wanted[1:]])
    assert all(len(rows) == 0 or 0 <= int(rows.min()) <= int(rows.max()) < num_owned for rows in send_rows), (
        "a rank asked for rows that are not owned here: the ranks read different maps"
    )

    send_rows = [torch.from_numpy(order.of(rows.numpy())) for rows in send_rows]
    starts = np.zeros(len(agreed) + 1, np.int64)
    plan = HaloPlan(rank, size, receive_rows, send_rows, agreed, starts)
    np.cumsum([sum(plan.received(segment) for segment in round_) for round_ in agreed], out=starts[1:])
    return plan, position


def gather_halo(plan: HaloPlan, values: torch.Tensor, comm: Communicator) -> torch.Tensor:
    """The owners' values of all halo rows, in halo order: a whole halo in memory, so for narrow things only.
    Collective.

    values: (n_p,) own values of any dtype. Returns (num_halo,).
    """
    parts = [torch.empty(rows, dtype=values.dtype) for rows in plan.receive_rows]
    incoming = [(plan.source(offset), part) for offset, part in enumerate(parts, start=1) if len(part)]
    outgoing = [(plan.dest(offset), values[rows]) for offset, rows in enumerate(plan.send_rows, start=1) if len(rows)]
    comm.exchange(outgoing, incoming, "plan").finish()
    return torch.cat(parts) if parts else values[:0]


def _numbered(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(the different ones, increasing int32; the place of each id among them): by a table where ids are dense."""
    most = int(ids.max()) + 1
    if most > 8 * len(ids):
        found, place = np.unique(ids, return_inverse=True)
        return found.astype(np.int32), place
    there = np.zeros(most, bool)
    there[ids] = True
    return np.flatnonzero(there).astype(np.int32), (np.cumsum(there, dtype=np.int32) - 1)[ids]


def _tell(comm: Communicator, wanted: list[torch.Tensor]) -> list[torch.Tensor]:
    """Tell each owner which rows are wanted: int32 tensors by ring offset of the owner. Returns which of the own rows
    the rank at each ring offset wants. Collective: every rank tells every other how many, all at once.
    """
    sources = [(comm.rank - k) % comm.size for k in range(1, comm.size)]
    dests = [(comm.rank + k) % comm.size for k in range(1, comm.size)]
    counts = [torch.tensor([len(rows)]) for rows in wanted]
    asked = [torch.zeros(1, dtype=torch.int64) for _ in dests]
    comm.exchange(list(zip(sources, counts)), list(zip(dests, asked)), "plan").finish()
    told = [torch.empty(int(count), dtype=torch.int32) for count in asked]
    outgoing, incoming = (
        [(rank, rows) for rank, rows in zip(ranks, parts) if len(rows)]
        for ranks, parts in ((sources, wanted), (dests, told))
    )
    comm.exchange(outgoing, incoming, "plan").finish()
    return told
