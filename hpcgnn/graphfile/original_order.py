"""Rows of all ranks in the order of the original node ids, slab by slab, without any rank holding them all.

A partition scatters the original order over the ranks. Each rank therefore becomes the keeper of one contiguous range
of original ids and gets the rows of that range from their owners. Then it hands them slab by slab to rank 0, which
writes them.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hpcgnn.comm.communicator import Communicator
from hpcgnn.graphfile.hdf5 import create_dataset, replacing, write_attributes, written_file
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


class _Keepers:
    """How rows get from their owners to the ranks that keep them, and back. Made collectively.

    It holds the places of the own nodes, and those in this rank's slab for the rows of each rank.

    Attributes:
        start, stop: the original ids that this rank keeps.
    """

    def __init__(self, original_id: torch.Tensor, num_nodes: int, comm: Communicator) -> None:
        self._comm, order = comm, torch.argsort(original_id)
        self.start, self.stop = share_of(comm.rank, num_nodes, comm)
        edges = torch.tensor([share_of(rank, num_nodes, comm)[0] for rank in range(comm.size)])
        firsts = torch.searchsorted(original_id[order], edges)
        counts = torch.diff(firsts, append=torch.tensor([len(order)]))
        self._mine = order.split(counts.tolist())  # own nodes by keeper, in the order of their ids
        self._counts, self._expected = counts.tolist(), comm.alltoall(counts, "evaluation").tolist()
        ids = self._swapped(lambda keeper: original_id[self._mine[keeper]], self._expected)
        self._places = {owner: part - self.start for owner, part in ids}

    def _swapped(
        self, rows_for: Callable[[int], torch.Tensor], expected: list[int]
    ) -> Iterator[tuple[int, torch.Tensor]]:
        """(source, rows) of every rank, of the rows that go to each; in the order of ring offsets."""
        comm = self._comm
        for offset in range(comm.size):
            dest, source = (comm.rank + offset) % comm.size, (comm.rank - offset) % comm.size
            outgoing = rows_for(dest)
            incoming = outgoing
            if offset:
                incoming = outgoing.new_empty(expected[source], *outgoing.shape[1:])
                sent = [(dest, outgoing.contiguous())] if len(outgoing) else []
                comm.exchange(sent, [(source, incoming)] if len(incoming) else [], "evaluation").finish()
            yield source, incoming

    def collected(self, rows: torch.Tensor) -> torch.Tensor:
        """The rows that this rank keeps, in order, of the owned rows of all ranks. Collective."""
        kept = rows.new_empty(self.stop - self.start, *rows.shape[1:])
        for owner, part in self._swapped(lambda keeper: rows[self._mine[keeper]], self._expected):
            kept[self._places[owner]] = part
        return kept

    def handed_out(self, kept: torch.Tensor) -> torch.Tensor:
        """The rows of the owned nodes, of those that all ranks keep. Collective."""
        rows = kept.new_empty(sum(self._counts), *kept.shape[1:])
        for keeper, part in self._swapped(lambda owner: kept[self._places[owner]], self._counts):
            rows[self._mine[keeper]] = part
        return rows


class OriginalOrder:
    """Rows of all ranks, for all nodes or some, in one pass through the original order. Made collectively.

    Memory beyond the arguments is twice this rank's share of one matrix, and its slab of all. Then rank 0 goes through
    `slabs()` while the others `hand_over()`.

    Args:
        rows: {name: (n_p, width)} of owned nodes, with the same names, widths and dtypes on all ranks.
        original_id: int64 (n_p,).
        wanted: int64, ascending, the nodes whose rows rank 0 goes through, the same on all ranks; None: all nodes.

    Attributes:
        kept: {name: the rows that this rank keeps}, those of wanted nodes in `share_of`.
        widths, dtypes: {name: width or dtype of its rows}.
    """

    def __init__(
        self,
        rows: Mapping[str, torch.Tensor],
        original_id: torch.Tensor,
        num_nodes: int,
        comm: Communicator,
        wanted: np.ndarray | None = None,
    ) -> None:
        self._comm, self._wanted = comm, wanted
        self.widths = {name: each.shape[1] for name, each in rows.items()}
        self.dtypes = {name: each.numpy().dtype for name, each in rows.items()}
        keepers = _Keepers(original_id, num_nodes, comm)
        # Of the rows that are written, keeper r has those from place _ends[r] to _ends[r + 1].
        self._ends = np.array([*(share_of(rank, num_nodes, comm)[0] for rank in range(comm.size)), num_nodes])
        taken: slice | torch.Tensor = slice(None)
        if wanted is not None:
            self._ends = np.searchsorted(wanted, self._ends)
            first, last = self._ends[comm.rank : comm.rank + 2]
            taken = torch.from_numpy(wanted[first:last]) - keepers.start
        self.kept = {name: keepers.collected(each)[taken] for name, each in rows.items()}
        row_bytes = sum(each[:1].element_size() * each.shape[1] for each in self.kept.values())
        self._slab = max(1, min(SLAB_ROWS, SLAB_BYTES // max(1, row_bytes)))

    def slabs(self) -> Iterator[Slab]:
        """Yield all rows, slab by slab, on rank 0 alone; the others `hand_over`."""
        rank, ends, count = self._comm.rank, self._ends, int(self._ends[-1])
        for start in range(0, count, self._slab):
            slab, stop = {}, min(start + self._slab, count)
            keepers = np.flatnonzero((ends[:-1] < stop) & (ends[1:] > start)).tolist()
            for name, mine in self.kept.items():
                out = mine.new_empty(stop - start if rank == 0 else 0, mine.shape[1])
                for keeper in keepers:
                    first, last = max(start, int(ends[keeper])), min(stop, int(ends[keeper + 1]))
                    if keeper == rank == 0:
                        out[first - start : last - start] = mine[first:last]
                    elif rank == 0:
                        self._comm.exchange([], [(keeper, out[first - start : last - start])], "evaluation").finish()
                    elif keeper == rank:
                        part = mine[first - int(ends[rank]) : last - int(ends[rank])]
                        self._comm.exchange([(0, part)], [], "evaluation").finish()
                slab[name] = out.numpy()
            if rank == 0:
                yield np.arange(start, stop) if self._wanted is None else self._wanted[start:stop], slab

    def hand_over(self) -> None:
        """Send the rows that this rank keeps to rank 0, in the pieces in which it goes through them."""
        assert not list(self.slabs()), "another rank than 0 sends"


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
    with contextlib.ExitStack() as until_whole:
        if comm.rank == 0:
            file, check = until_whole.enter_context(written_file(until_whole.enter_context(replacing(path))))
            write_attributes(file, **attributes)
        for name, rows in parts.items():
            order = OriginalOrder({name: rows}, original_id, num_nodes, comm)
            if comm.rank != 0:
                order.hand_over()
                continue
            dataset = create_dataset(file, name, (num_nodes, rows.shape[1]), order.dtypes[name])
            for nodes, slab in order.slabs():
                dataset[nodes[0] : nodes[-1] + 1] = slab[name]
                check()
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
    with comm.together("reading rows of nodes"):
        kept = read(*share_of(comm.rank, num_nodes, comm))
    return _Keepers(original_id, num_nodes, comm).handed_out(kept)
