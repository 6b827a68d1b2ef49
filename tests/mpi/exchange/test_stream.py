"""The stream by itself: rows come, rounded on the way, and results return to the owners of rows; and the cost."""

import graphs
import numpy as np
import oracle
import pytest
import torch

from hpcgnn import kernels
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.exchange.row_codec import RowCodec
from hpcgnn.exchange.stream import Returns, Stream, StreamInput

from ..narrowing import DTYPES, error_bound, row_bytes
from ..small import stored

WIDTH, NARROW, RETURNED, NARROW_BACK = 11, 9, 9, 8


def halo_of(rank, graph, where, owner, size):
    """The original ids of a rank's halo, in the order in which rows come: by ring offset, then as the file has them."""
    needed = np.zeros(graph.num_nodes, bool)
    needed[graph.src[owner[graph.dst] == rank]] = True
    ring = [(rank - offset) % size for offset in range(1, size)]
    return np.array([node for peer in ring for node in where.order if needed[node] and owner[node] == peer], np.int64)


@pytest.mark.smoke
@pytest.mark.pairs
@pytest.mark.parametrize("map_name", ["dealt", "one empty", "all on last"])
@pytest.mark.parametrize("fine_rows, cap", [(1000, 1000), (4, 4), (4, 11)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_narrow_columns(comm, session_path, dtype, fine_rows, cap, map_name):
    """Leading columns are rounded once on each way, the others are not; bytes say the same."""
    graph, where, file = stored(comm, session_path, "power law")
    owner, n = where.owner(map_name), graph.num_nodes
    local = graphs.load(file, where.maps[map_name], comm, cap=fine_rows)
    ids, adjacency = local.original_id.numpy(), local.inward
    sent_row = row_bytes(dtype, NARROW) + 8 * (WIDTH - NARROW)
    back_row = row_bytes(dtype, NARROW_BACK) + 8 * (RETURNED - NARROW_BACK)
    widened = 8 * WIDTH * adjacency.plan.longest_round
    buffers = HaloBuffers(cap * (3 * sent_row + 4 * back_row + 8 * RETURNED) + widened)
    wire = RowCodec(dtype, local.original_id, lambda number: kernels.stream_key(3, number))
    stream = Stream(adjacency.own, adjacency.halo, adjacency.plan, buffers, comm, wire)
    halos = [halo_of(rank, graph, where, owner, comm.size) for rank in range(comm.size)]
    halo, factors = halos[comm.rank], np.arange(1.0, n + 1) / 9
    table = np.random.default_rng(0).standard_normal((n, WIDTH))
    gone = np.random.default_rng(8).standard_normal((comm.size, n, RETURNED))
    rows = StreamInput(torch.from_numpy(table[ids]), torch.from_numpy(factors[ids]), narrow=NARROW)
    total, found = torch.zeros(len(ids), RETURNED, dtype=torch.float64), []
    comm.ledger.take()
    for block, given, _, back, *_ in stream(rows, "both", Returns(total, NARROW_BACK)):
        if block.first_column is None:
            assert given is rows.x and back is total, "own rows are not rounded"
            continue
        assert given.dtype == torch.float64 and not back.any()
        found.append(given.clone().numpy())
        back += torch.from_numpy(gone[comm.rank][halo[block.first_column : block.first_column + len(given)]])
    traffic, halo_rows = comm.ledger.take(), oracle.halo_rows(graph.src, graph.dst, owner, comm.size)
    entry = traffic.pop("both", None)
    assert not traffic, "no other traffic: no ids, no counts"
    messages = sum(oracle.messages(halo_rows, fine_rows, cap, back=back)[comm.rank] for back in (False, True))
    sent, received = stream.plan.num_boundary, len(halo)
    wanted = messages, sent_row * sent + back_row * received, sent_row * received + back_row * sent
    assert ((entry.messages, entry.bytes_sent, entry.bytes_received) if entry else (0, 0, 0)) == wanted
    assert buffers.nbytes <= buffers.limit
    if len(halo):
        found, exact = np.concatenate(found), (factors[:, None] * table)[halo]
        assert (np.abs(found - exact)[:, :NARROW] <= error_bound(dtype, exact[:, :NARROW])).all()
        assert (found[:, :NARROW] != exact[:, :NARROW]).any(), "they were rounded"
        np.testing.assert_array_equal(found[:, NARROW:], exact[:, NARROW:])
    # Each returned row is rounded by itself and added exactly, up to the last digit: so the errors add up.
    expected, bound = np.zeros((n, RETURNED)), np.zeros((n, RETURNED))
    for rank, halo in enumerate(halos):
        part = gone[rank][halo]
        expected[halo] += part
        bound[halo, :NARROW_BACK] += error_bound(dtype, part[:, :NARROW_BACK])
    assert (np.abs(total.numpy() - expected[ids]) <= bound[ids] + 1e-12).all()
