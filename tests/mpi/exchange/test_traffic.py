"""Messages and bytes, exactly: the graph, the map and the buffer alone decide the traffic of an aggregation."""

import graphs
import numpy as np
import oracle
import pytest
from asking import aggregate

from hpcgnn.errors import HpcgnnError
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.exchange.plan import build_halo_plan
from hpcgnn.schedules.full_halo import FullHalo

from ..gathering import both_ways
from ..small import GRAPHS, stored

pytestmark = pytest.mark.ranks(2, 3)


def test_a_row_that_its_owner_does_not_have_is_an_error_on_all_ranks(comm):
    """Kernels would read and write outside the rows; `python -O` leaves asserts out."""
    owner = np.full(2 * (comm.rank == 0), 1)
    wanted = "another rank asked for rows up to 3, expected 0..2.* same file \\[rank 1 of"
    with pytest.raises(HpcgnnError, match=wanted) as caught:
        build_halo_plan(owner, np.array([0, 3], np.int32)[: len(owner)], 9, 3, comm)
    assert caught.value.everywhere


@pytest.mark.parametrize("width, fine_rows, rows", [(3, 1000, 1000), (3, 2, 2), (2, 2, 5)])
@pytest.mark.parametrize("name", GRAPHS)
def test_messages_and_bytes(comm, session_path, name, width, fine_rows, rows):
    """fine_rows: that the rounds were cut for; rows: of this width that fit into a buffer, so that rounds travel
    together.
    """
    graph, where, file = stored(comm, session_path, name)
    row_bytes = width * 8
    for map_name in ("dealt", "one empty"):
        local = graphs.load(file, where.maps[map_name], comm, cap=fine_rows)
        policy, ones = FullHalo(local, comm, HaloBuffers(3 * rows * row_bytes)), np.ones((graph.num_nodes, width))
        traffic = both_ways(comm, local, lambda x: aggregate(policy, x, "sym"), ones, ones)[2]
        owner = where.owner(map_name)
        # Forwards rows go from sources to destinations; backwards the same graph is used with its edges turned round.
        for kind, src, dst in (("halo_forward", graph.src, graph.dst), ("halo_backward", graph.dst, graph.src)):
            halo = oracle.halo_rows(src, dst, owner, comm.size)
            expected = oracle.messages(halo, fine_rows, rows)[comm.rank]
            sent = sum(halo[(comm.rank + k) % comm.size][k - 1] for k in range(1, comm.size))
            entry = traffic.pop(kind, None)
            counts = (entry.messages, entry.bytes_sent, entry.bytes_received) if entry else (0, 0, 0)
            assert counts == (expected, sent * row_bytes, sum(halo[comm.rank]) * row_bytes), f"{kind}, {map_name}"
        assert not traffic, "an aggregation has no other traffic: no ids, no counts, nothing fetched twice"
        assert policy.inward.buffers.nbytes <= policy.inward.buffers.limit
