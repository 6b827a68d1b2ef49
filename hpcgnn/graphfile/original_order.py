"""Rows of all ranks written to one file in the order of the original node ids, without any rank holding them all.

A partition scatters the original order over the ranks. Each rank therefore becomes the keeper of one contiguous range
of original ids, gets the rows of that range from their owners, and hands them slab by slab to rank 0, which alone
writes.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hpcgnn.comm.communicator import Communicator
from hpcgnn.graphfile.storage import SLAB_ROWS, replacing, write_arrays


def write_in_original_order(
    path: str | Path,
    name: str,
    rows: torch.Tensor,
    original_id: torch.Tensor,
    num_nodes: int,
    comm: Communicator,
    **attributes: Any,
) -> None:
    """Write `rows` of all ranks as dataset `name` (num_nodes, C) of a new file, with root attributes. Collective.

    rows: (n_p, C) int32; original_id: int64 (n_p,). Memory beyond the arguments: twice this rank's share. Raises
    FormatError on rank 0 alone if the file cannot be written, which ends the job.
    """
    kept = _Kept(rows, original_id, num_nodes, comm)
    if comm.rank == 0:
        write_arrays(path, {name: kept}, num_nodes=num_nodes, **attributes)
    else:
        kept.hand_over()
    comm.barrier()


def write_table_in_original_order(
    path: str | Path,
    columns: Sequence[str],
    rows: torch.Tensor,
    original_id: torch.Tensor,
    num_nodes: int,
    comm: Communicator,
) -> None:
    """Write `rows` of all ranks as a CSV file with a heading: each line a node and its row, in order. Collective.

    columns: names of the C columns; all else as of `write_in_original_order`.
    """
    kept = _Kept(rows, original_id, num_nodes, comm)
    if comm.rank == 0:
        with replacing(path) as temporary, open(temporary, "w", encoding="ascii") as file:
            file.write(",".join(("node", *columns)) + "\n")
            for start in range(0, num_nodes, SLAB_ROWS):
                stop = min(start + SLAB_ROWS, num_nodes)
                np.savetxt(file, np.column_stack([np.arange(start, stop), kept[start:stop]]), "%d", ",")
    else:
        kept.hand_over()
    comm.barrier()


class _Kept:
    """This rank's range of the original ids; on rank 0, an array of all of them that fetches what is sliced."""

    def __init__(self, rows: torch.Tensor, original_id: torch.Tensor, num_nodes: int, comm: Communicator) -> None:
        self._comm, self._share = comm, max(1, -(-num_nodes // comm.size))
        self.shape, self.dtype = (num_nodes, rows.shape[1]), rows.numpy().dtype
        self._start = min(num_nodes, comm.rank * self._share)
        self._rows = torch.empty(
            (min(num_nodes, self._start + self._share) - self._start, rows.shape[1]), dtype=rows.dtype
        )
        order = torch.argsort(original_id)
        ids = original_id[order]
        edges = torch.arange(comm.size + 1) * self._share
        counts = torch.diff(torch.searchsorted(ids, edges)).tolist()
        expected = _counts_for_me(counts, comm)
        ids, rows = ids.split(counts), rows[order].split(counts)
        for offset in range(comm.size):
            dest, source = (comm.rank + offset) % comm.size, (comm.rank - offset) % comm.size
            self._place(*self._swap(ids[dest], rows[dest], dest, source, expected[source]))

    def _swap(
        self, ids: torch.Tensor, rows: torch.Tensor, dest: int, source: int, expected: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if dest == self._comm.rank:
            return ids, rows
        ids_in = torch.empty(expected, dtype=ids.dtype)
        rows_in = torch.empty((expected, rows.shape[1]), dtype=rows.dtype)
        for outgoing, incoming in ((ids, ids_in), (rows, rows_in)):
            sent = [(dest, outgoing.contiguous())] if len(ids) else []
            self._comm.exchange(sent, [(source, incoming)] if expected else [], "evaluation").finish()
        return ids_in, rows_in

    def _place(self, ids: torch.Tensor, rows: torch.Tensor) -> None:
        self._rows[ids - self._start] = rows

    def _pieces(self, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """(keeper, start, stop) of the parts of a range of original ids, in order."""
        while start < stop:
            keeper = start // self._share
            end = min(stop, (keeper + 1) * self._share)
            yield keeper, start, end
            start = end

    def __getitem__(self, where: slice) -> np.ndarray:
        """The rows of a slice, as numpy. Rank 0 alone, each slab once and in order, while the others `hand_over`."""
        out = torch.empty((where.stop - where.start, self.shape[1]), dtype=self._rows.dtype)
        for keeper, start, stop in self._pieces(where.start, where.stop):
            part = out[start - where.start : stop - where.start]
            if keeper == 0:
                part.copy_(self._rows[start:stop])
            else:
                self._comm.exchange([], [(keeper, part)], "evaluation").finish()
        return np.asarray(out)

    def hand_over(self) -> None:
        """Send this rank's range to rank 0 in the pieces in which it asks for them."""
        for slab in range(0, self.shape[0], SLAB_ROWS):
            for keeper, start, stop in self._pieces(slab, min(slab + SLAB_ROWS, self.shape[0])):
                if keeper == self._comm.rank:
                    part = self._rows[start - self._start : stop - self._start]
                    self._comm.exchange([(0, part)], [], "evaluation").finish()


def _counts_for_me(counts: list[int], comm: Communicator) -> list[int]:
    """How many rows come from each rank, of how many go to each: P numbers on a rank, and never P of P. Collective."""
    others = [rank for rank in range(comm.size) if rank != comm.rank]
    found = torch.tensor(counts)
    incoming = [(rank, found[rank : rank + 1].clone()) for rank in others]
    comm.exchange([(rank, torch.tensor(counts[rank : rank + 1])) for rank in others], incoming, "evaluation").finish()
    for rank, count in incoming:
        found[rank] = count[0]
    return found.tolist()
