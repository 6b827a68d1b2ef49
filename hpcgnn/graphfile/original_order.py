"""Rows of all ranks in the order of the original node ids, slab by slab, without any rank holding them all.

A partition scatters the original order over the ranks. Each rank therefore becomes the keeper of one contiguous range
of original ids and gets the rows of that range from their owners. Then it writes them to their place itself, or hands
them slab by slab to rank 0, where one rank alone can write.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hpcgnn.comm.communicator import Communicator
from hpcgnn.graphfile.columns import written_columns
from hpcgnn.graphfile.storage import SLAB_ROWS

# Bytes of wide rows that rank 0 holds at a time.
SLAB_BYTES = 64 << 20
#: Nodes int64 (m,), ascending, and their rows: {name: (m, width)}.
Slab = tuple[np.ndarray, dict[str, np.ndarray]]


def share_of(rank: int, num_nodes: int, comm: Communicator) -> tuple[int, int]:
    """(start, stop) of the original ids that a rank keeps."""
    share = max(1, -(-num_nodes // comm.size))
    start = min(num_nodes, rank * share)
    return start, min(num_nodes, start + share)


class OriginalOrder:
    """Rows of all ranks, for all nodes or some, in one pass through the original order. Made collectively.

    Memory beyond the arguments is twice this rank's share of one matrix, and its slab of all. Then every rank goes
    through its `own_slabs()`; or rank 0 through `slabs()` while the others `hand_over()`.

    Args:
        rows: {name: (n_p, width)} of owned nodes, with the same names, widths and dtypes on all ranks.
        original_id: int64 (n_p,).
        wanted: int64, ascending, the wanted nodes in this rank's slab (`share_of`); None for all.

    Attributes:
        num_rows: number of rows of all ranks.
        widths, dtypes: {name: width or dtype of its rows}.
    """

    def __init__(
        self,
        rows: Mapping[str, torch.Tensor],
        original_id: torch.Tensor,
        num_nodes: int,
        comm: Communicator,
        wanted: torch.Tensor | None = None,
    ) -> None:
        self._comm, self._num_nodes, self._all = comm, num_nodes, wanted is None
        self.widths = {name: each.shape[1] for name, each in rows.items()}
        self.dtypes = {name: each.numpy().dtype for name, each in rows.items()}
        order, counts = _by_keeper(original_id, num_nodes, comm)
        start, stop = share_of(comm.rank, num_nodes, comm)
        places = _Places(original_id[order].split(counts), _counts_for_me(counts, comm), start, stop, comm)
        self._kept: dict[str, torch.Tensor] = {}
        for name, each in rows.items():
            mine = places.move(each[order].split(counts))
            self._kept[name] = mine if wanted is None else mine[wanted - start]
        if wanted is not None:
            self._kept["node"] = wanted.unsqueeze(1)
        count = len(next(iter(self._kept.values())))
        self._ends = np.cumsum([0, *comm.allgather_object(count)])
        self.num_rows = int(self._ends[-1])
        row_bytes = sum(each[:1].element_size() * each.shape[1] for each in self._kept.values())
        self._slab = max(1, min(SLAB_ROWS, SLAB_BYTES // max(1, row_bytes)))

    def own_slabs(self) -> Iterator[tuple[int, Slab]]:
        """(place among all rows, slab) of the rows that this rank keeps, in order. Not collective."""
        first = int(self._ends[self._comm.rank])
        for start in range(first, int(self._ends[self._comm.rank + 1]), self._slab):
            slab = {name: mine[start - first :][: self._slab].numpy() for name, mine in self._kept.items()}
            count = len(next(iter(slab.values())))
            yield start, self._with_nodes(start, count, slab)

    def _with_nodes(self, first: int, count: int, rows: dict[str, np.ndarray]) -> Slab:
        """Return `count` rows from `first` on, with their nodes as a separate array."""
        return (np.arange(first, first + count) if self._all else rows.pop("node")[:, 0]), rows

    def _pieces(self) -> Iterator[list[tuple[int, int, int]]]:
        """For each slab [(keeper, start, stop)] of its parts, in order; start and stop are counted from the keeper's
        first row.
        """
        for start in range(0, self.num_rows, self._slab):
            stop = min(start + self._slab, self.num_rows)
            keepers = np.flatnonzero((self._ends[:-1] < stop) & (self._ends[1:] > start)).tolist()
            yield [
                (
                    keeper,
                    max(start, int(self._ends[keeper])) - int(self._ends[keeper]),
                    min(stop, int(self._ends[keeper + 1])) - int(self._ends[keeper]),
                )
                for keeper in keepers
            ]

    def slabs(self, nodes_alone: bool = False) -> Iterator[Slab]:
        """Yield all rows, slab by slab, on rank 0 alone. nodes_alone: without their contents; equal on all ranks."""
        first = 0
        for parts in self._pieces():
            count = sum(stop - start for _, start, stop in parts)
            slab = {}
            for name, mine in self._handed(nodes_alone).items():
                out = torch.empty((count, mine.shape[1]), dtype=mine.dtype)
                begin = 0
                for keeper, start, stop in parts:
                    part = out[begin : begin + stop - start]
                    begin += stop - start
                    if keeper == 0:
                        part.copy_(mine[start:stop])
                    else:
                        self._comm.exchange([], [(keeper, part)], "evaluation").finish()
                slab[name] = out.numpy()
            yield self._with_nodes(first, count, slab)
            first += count

    def _handed(self, nodes_alone: bool) -> dict[str, torch.Tensor]:
        return {name: mine for name, mine in self._kept.items() if name == "node" or not nodes_alone}

    def hand_over(self, nodes_alone: bool = False) -> None:
        """Send the rows that this rank keeps to rank 0, in the pieces in which it goes through them."""
        for parts in self._pieces():
            for mine in self._handed(nodes_alone).values():
                for keeper, start, stop in parts:
                    if keeper == self._comm.rank:
                        self._comm.exchange([(0, mine[start:stop])], [], "evaluation").finish()


def write_in_original_order(
    path: str | Path,
    parts: Mapping[str, torch.Tensor],
    original_id: torch.Tensor,
    num_nodes: int,
    comm: Communicator,
    **attributes: Any,
) -> None:
    """Write datasets {name: rows (n_p, C)} of all ranks into a new file, with root attributes. Collective.

    Memory beyond the arguments: twice this rank's share of one of them. Raises FormatError on rank 0 alone if the file
    cannot be written, which ends the job.
    """
    columns = {name: ((num_nodes, rows.shape[1]), rows.numpy().dtype) for name, rows in parts.items()}
    with written_columns(path, columns, **attributes) if comm.rank == 0 else contextlib.nullcontext() as put:
        for name, rows in parts.items():
            order = OriginalOrder({name: rows}, original_id, num_nodes, comm)
            if put is None:
                order.hand_over()
                continue
            for nodes, slab in order.slabs():
                put(int(nodes[0]), slab)
    comm.barrier()


def read_in_original_order(
    read: Callable[[int, int], torch.Tensor], original_id: torch.Tensor, num_nodes: int, comm: Communicator
) -> torch.Tensor:
    """Return the owned nodes' rows (n_p, C) of an array stored in the original order. Collective.

    Memory is twice this rank's share.

    Args:
        read: read(start, stop) returns rows of a range of original ids. Each rank calls it once, for its slab, from
            which others get theirs. Its errors are raised on all ranks.
        original_id: int64 (n_p,).
        num_nodes: number of nodes of the graph.
        comm: the communicator.
    """
    start, stop = share_of(comm.rank, num_nodes, comm)
    with comm.together("reading rows of nodes"):
        kept = read(start, stop)
    order, counts = _by_keeper(original_id, num_nodes, comm)
    wanted, places, asked = original_id[order].split(counts), order.split(counts), _counts_for_me(counts, comm)
    rows = kept.new_empty(len(order), *kept.shape[1:])
    for offset in range(comm.size):
        keeper, asker = (comm.rank + offset) % comm.size, (comm.rank - offset) % comm.size
        if keeper == comm.rank:
            rows[places[keeper]] = kept[wanted[keeper] - start]
            continue
        question, answer = torch.empty(asked[asker], dtype=torch.int64), kept.new_empty(counts[keeper], *kept.shape[1:])
        sent = [(keeper, wanted[keeper].contiguous())] if counts[keeper] else []
        comm.exchange(sent, [(asker, question)] if asked[asker] else [], "evaluation").finish()
        sent = [(asker, kept[question - start])] if asked[asker] else []
        comm.exchange(sent, [(keeper, answer)] if counts[keeper] else [], "evaluation").finish()
        rows[places[keeper]] = answer
    return rows


def _by_keeper(original_id: torch.Tensor, num_nodes: int, comm: Communicator) -> tuple[torch.Tensor, list[int]]:
    """(the own nodes in the order of their ids, how many of them each rank keeps)."""
    order = torch.argsort(original_id)
    edges = torch.tensor([share_of(rank, num_nodes, comm)[0] for rank in range(comm.size)])
    firsts = torch.searchsorted(original_id[order], edges)
    return order, torch.diff(firsts, append=torch.tensor([len(order)])).tolist()


class _Places:
    """How rows get from their owners to the ranks that keep their slabs. Made collectively.

    It holds the places in this rank's slab for the rows of each rank.

    Attributes:
        ids: owned nodes by keeper, ascending.
        expected: number of rows from each rank.
        start, stop: this rank's slab.
    """

    def __init__(
        self, ids: tuple[torch.Tensor, ...], expected: list[int], start: int, stop: int, comm: Communicator
    ) -> None:
        self._comm, self._expected, self._length = comm, expected, stop - start
        self._places = [part - start for _, part in self._swapped([each.unsqueeze(1) for each in ids])]

    def _swapped(self, parts: list[torch.Tensor] | tuple[torch.Tensor, ...]) -> Iterator[tuple[int, torch.Tensor]]:
        """(source, rows) of every rank, of the rows that go to each; in the order of ring offsets."""
        comm = self._comm
        for offset in range(comm.size):
            dest, source = (comm.rank + offset) % comm.size, (comm.rank - offset) % comm.size
            outgoing, expected = parts[dest], self._expected[source]
            if dest == comm.rank:
                yield source, outgoing
                continue
            incoming = torch.empty((expected, outgoing.shape[1]), dtype=outgoing.dtype)
            sent = [(dest, outgoing.contiguous())] if len(outgoing) else []
            comm.exchange(sent, [(source, incoming)] if expected else [], "evaluation").finish()
            yield source, incoming

    def move(self, parts: tuple[torch.Tensor, ...]) -> torch.Tensor:
        """The rows that this rank keeps, in order, of the rows of all ranks by keeper. Collective."""
        kept = torch.empty((self._length, parts[0].shape[1]), dtype=parts[0].dtype)
        for place, (_, rows) in zip(self._places, self._swapped(parts), strict=True):
            kept[place[:, 0]] = rows
        return kept


def _counts_for_me(counts: list[int], comm: Communicator) -> list[int]:
    """How many rows come from each rank, of how many go to each. Collective."""
    return comm.alltoall(torch.tensor(counts), "evaluation").tolist()
