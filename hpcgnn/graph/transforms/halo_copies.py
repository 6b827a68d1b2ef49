"""Copies of the halo's rows that a rank keeps: for inputs that are exchanged once and used for many epochs."""

import torch

from hpcgnn.comm.communicator import Communicator
from hpcgnn.exchange.plan import HaloPlan, gather_halo, of_offsets, parts
from hpcgnn.exchange.stream import Stream, StreamInput
from hpcgnn.graph.blocks import Block
from hpcgnn.graph.sparse_rows import SparseRows, sparse_rows
from hpcgnn.graphfile.ranges import segments


def halo_rows(stream: Stream[Block], x: torch.Tensor, kind: str) -> torch.Tensor:
    """A kept copy of the halo's rows of x (n_p, F), in halo order: (halo rows, F). Collective; traffic booked as
    `kind`.
    """
    kept = x.new_empty(stream.plan.num_halo, x.shape[1])
    for part in stream(StreamInput(x.contiguous()), kind):
        if (first := part.block.first_column) is not None:
            kept[first : first + len(part.rows)] = part.rows
    return kept


def sparse_with_halo(features: SparseRows, plan: HaloPlan, comm: Communicator, kind: str) -> SparseRows:
    """SparseRows of the own rows followed by the halo's, sent as they are stored. Collective.

    A row takes 4 bytes and an entry 8 (fp64: 12), or 4 if all entries of the graph are equal.
    """
    ends = torch.tensor([float("inf"), -float("inf")], dtype=torch.float64)
    if len(features.data):
        ends = torch.stack([features.data.min(), features.data.max()]).double()
    largest = comm.allreduce_(torch.stack([-ends[0], ends[1]]), "plan", "max")
    alike = bool(largest[0] == -largest[1])
    lengths = torch.diff(features.indptr)
    with comm.ledger.booked_as(kind):
        arriving = gather_halo(plan, lengths.int(), comm).long()
    sent_rows, peers = plan.send_rows.long(), plan.peers
    sizes = lengths[sent_rows]
    entries = torch.from_numpy(segments(features.indptr[sent_rows].numpy(), sizes.numpy()))
    sent, come = of_offsets(plan.send_counts, sizes.numpy()), of_offsets(plan.receive_counts, arriving.numpy())

    def exchanged(values: torch.Tensor) -> torch.Tensor:
        """The entries of own rows, and then those of the halo."""
        picked, halo = values[entries], values.new_empty(int(come.sum()))
        outgoing = [(peers.dest(k), picked[first : first + count]) for k, first, count in parts(sent)]
        incoming = [(peers.source(k), halo[first : first + count]) for k, first, count in parts(come)]
        comm.exchange(outgoing, incoming, kind).finish()
        return torch.cat([values, halo])

    columns = exchanged(features.indices)
    data = features.data.new_full(columns.shape, float(largest[1])) if alike else exchanged(features.data)
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), torch.cat([lengths, arriving]).cumsum(0)])
    return sparse_rows(indptr.numpy(), columns.numpy(), data.numpy(), features.num_columns, data.dtype)
