"""Shares that an estimate counts from a file, and the graphs that the ranks load: the same, rank by rank and pair by
pair.
"""

import graphs
import numpy as np
import pytest

from hpcgnn.estimate.shares import ShareCounter
from hpcgnn.graph.transforms.vertex_cover import least_rows
from hpcgnn.graphfile.storage import SPLITS, GraphFile

from ..small import GRAPHS, stored

pytestmark = pytest.mark.ranks(2)

MAPS = ("dealt", "random", "one empty", "all on last")


def received_from(halo, rank):
    """int (P - 1,): rows that a rank receives at each ring offset, as HaloCounts say."""
    mine = halo.receiver == rank
    rows = np.zeros(halo.ranks, np.int64)
    rows[halo.offset[mine]] = halo.rows[mine]
    return rows[1:]


def sent_to(halo, rank):
    """int (P - 1,): rows that a rank sends at each ring offset."""
    mine = (halo.receiver - halo.offset) % halo.ranks == rank
    rows = np.zeros(halo.ranks, np.int64)
    rows[halo.offset[mine]] = halo.rows[mine]
    return rows[1:]


@pytest.mark.parametrize("map_name", MAPS)
@pytest.mark.parametrize("name", GRAPHS)
def test_shares_are_those_of_the_ranks(comm, session_path, name, map_name):
    graph, where, path = stored(comm, session_path, name)
    local, rank = graphs.load(path, where.maps[map_name], comm), comm.rank
    with GraphFile(path) as file:
        shares = ShareCounter(file, where.maps[map_name], comm.size).shares()
    assert shares.ranks == comm.size and (shares.outward is shares.inward) == graph.undirected
    assert shares.nodes[rank] == local.num_owned and shares.nodes.sum() == graph.num_nodes
    assert shares.train[rank] == int((local.split == SPLITS["train"]).sum())
    for adjacency, way in ((local.inward, shares.inward), (local.outward, shares.outward)):
        assert way.own[rank] == adjacency.own.num_edges
        assert way.remote[rank] == sum(block.num_edges for block in adjacency.halo)
        plan, halo = adjacency.plan, way.ranks
        assert received_from(halo, rank).tolist() == plan.receive_counts.tolist()
        assert sent_to(halo, rank).tolist() == plan.send_counts.tolist()
        assert (halo.received[rank], halo.sent[rank]) == (plan.num_halo, plan.num_boundary)
        assert halo.peers[rank] == np.count_nonzero(plan.receive_counts)
        assert halo.rounds(1 << 20) == (plan.rounds, plan.sizes)
    owner = where.owner(map_name)
    with_loop = np.unique(graph.dst[graph.dst == graph.src])
    assert shares.loops.tolist() == np.bincount(owner[with_loop], minlength=comm.size).tolist()
    away = owner[graph.src] != owner[graph.dst]
    ends = np.union1d(graph.dst[away], graph.src[away])
    assert shares.outer[rank] == np.count_nonzero(owner[ends] == rank)
    assert shares.edges.sum() == len(graph.src)


@pytest.mark.parametrize("name", GRAPHS)
def test_fewest_rows_are_those_of_the_ranks(comm, session_path, name):
    graph, where, path = stored(comm, session_path, name)
    local = least_rows(graphs.load(path, where.maps["random"], comm), comm, always=True)
    with GraphFile(path) as file:
        shares = ShareCounter(file, where.maps["random"], comm.size, "least").shares()
    rows = comm.allgather_object(graphs.load(path, where.maps["random"], comm).inward.plan.num_halo)
    assert shares.map_rows == sum(rows)
    for halo, plan in ((shares.inward.ranks, local.inward.plan), (shares.outward.ranks, local.outward.plan)):
        assert received_from(halo, comm.rank).tolist() == plan.receive_counts.tolist()
        assert sent_to(halo, comm.rank).tolist() == plan.send_counts.tolist()
        assert halo.rounds(3) == halo.adjoint.adjoint.rounds(3)
