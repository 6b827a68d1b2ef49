"""Copies of the halo's rows that a rank keeps: for inputs that are exchanged once and used for many epochs."""

import numpy as np
import torch

from hpcgnn.comm import Communicator
from hpcgnn.exchange.plan import HaloPlan
from hpcgnn.exchange.stream import Rows, Stream
from hpcgnn.graph.blocks import Block
from hpcgnn.graph.sparse_rows import SparseRows, sparse_rows


def halo_rows(stream: Stream[Block], x: torch.Tensor, kind: str) -> torch.Tensor:
    """A kept copy of the halo's rows of x (n_p, F), in halo order: (halo rows, F). Collective; traffic booked as
    `kind`.
    """
    kept = x.new_empty(stream.plan.num_halo, x.shape[1])
    for part in stream(Rows(x.contiguous()), kind):
        if (first := part.block.first_column) is not None:
            kept[first : first + len(part.rows)] = part.rows
    return kept


def sparse_with_halo(features: SparseRows, plan: HaloPlan, comm: Communicator, kind: str) -> SparseRows:
    """SparseRows of the own rows followed by the halo's, sent as they are stored. Collective.

    A row takes 4 bytes and an entry 8 (fp64: 12), or 4 if all entries of the graph are equal. One peer comes at a time,
    so that little is packed at once.
    """
    ends = torch.tensor([float("inf"), -float("inf")], dtype=torch.float64)
    if len(features.data):
        ends = torch.stack([features.data.min(), features.data.max()]).double()
    largest = comm.allreduce_(torch.stack([-ends[0], ends[1]]), "plan", "max")
    alike = bool(largest[0] == -largest[1])
    lengths, columns, data = [torch.diff(features.indptr)], [features.indices], [features.data]
    # Ranks that have nothing for each other need no message, where the transport can do without.
    wanted = plan.receive_counts + plan.send_counts > 0 if comm.pairwise else np.ones(comm.size - 1, bool)
    for offset in (1 + np.flatnonzero(wanted)).tolist():
        dest, source = plan.peers.dest(offset), plan.peers.source(offset)
        sizes, entries = _picked(features, plan.rows_to(offset).long())
        arriving = torch.zeros(int(plan.receive_counts[offset - 1]), dtype=torch.int32)
        _exchange(comm, kind, sizes.int(), dest, arriving, source)
        total = int(arriving.sum())
        lengths.append(arriving.long())
        columns.append(torch.empty(total, dtype=features.indices.dtype))
        _exchange(comm, kind, features.indices[entries], dest, columns[-1], source)
        data.append(features.data.new_full((total,), float(largest[1])) if alike else features.data.new_empty(total))
        if not alike:
            _exchange(comm, kind, features.data[entries], dest, data[-1], source)
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), torch.cat(lengths).cumsum(0)])
    return sparse_rows(
        indptr.numpy(), torch.cat(columns).numpy(), torch.cat(data).numpy(), features.num_columns, features.data.dtype
    )


def _picked(features: SparseRows, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(entries of each of these rows, where the entries stand)."""
    sizes = torch.diff(features.indptr)[rows]
    first = torch.repeat_interleave(features.indptr[rows] - (sizes.cumsum(0) - sizes), sizes)
    return sizes, first + torch.arange(len(first))


def _exchange(
    comm: Communicator, kind: str, outgoing: torch.Tensor, dest: int, incoming: torch.Tensor, source: int
) -> None:
    sent = [(dest, outgoing.contiguous())] if len(outgoing) else []
    comm.exchange(sent, [(source, incoming)] if len(incoming) else [], kind).finish()
