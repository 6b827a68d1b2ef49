"""Rows of ranks of one node, read where they are: results against the oracle, on one node and on several."""

import graphs
import pytest
import torch

from hpcgnn.app import bring_up
from hpcgnn.errors import HpcgnnError
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.exchange.nodes import SharedRows
from hpcgnn.graph.transforms.vertex_cover import least_rows
from hpcgnn.graph.transforms.within_node import within_node
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.memory.arena import rounded
from hpcgnn.plan.run_plan import plan
from hpcgnn.schedules.full_halo import FullHalo

from .. import small
from ..linear import check_linear
from ..nodes import NODES, emulated
from ..training import build_trainer, configure, curve, traffic_of

pytestmark = pytest.mark.ranks(2, 3, 4)


@pytest.fixture(params=NODES)
def node(request, comm):
    """The NodeMemory of this rank, which its communicator has as well."""
    with emulated(comm, NODES[request.param](comm.rank)) as memory:
        yield memory


def test_more_rows_than_int32_numbers_are_refused_by_all_ranks(comm, session_path, monkeypatch):
    """Also by the rank of another node that has fewer: it would wait for the ranks that left."""
    _, where, file = small.stored(comm, session_path, "path")
    local = graphs.load(file, where.maps["dealt"], comm, cap=7)
    with emulated(comm, NODES["one alone"](comm.rank)) as memory:
        rows = SharedRows(memory)
        most = max(comm.allgather_object(rows.spread(local.num_owned).num_rows))
        monkeypatch.setattr("hpcgnn.graph.transforms.within_node.MOST_INT32", most - 1)
        with pytest.raises(HpcgnnError, match=f"own {most:,} nodes of the graph.*--intra-node messages"):
            within_node(local, rows, comm, returns=False)


@pytest.mark.ranks(2, 3, 4, 6)  # of 6 ranks "pairs" are three nodes, on whose ranks few rows fall unevenly
def test_linear_aggregation(comm, stored, node):
    """Between nodes rows travel, or rows and sums of them.

    A node's buffers take no more than its ranks' buffers, also where they have room for one row of each round.
    """
    graph, where, file = stored
    for map_name, cap, limit in (("dealt", 7, 1 << 14), ("random", 3, 3 * 3 * 3 * 8), ("one empty", 1, 3 * 3 * 8)):
        local = graphs.load(file, where.maps[map_name], comm, cap=cap)
        read = within_node(local, SharedRows(node), comm, returns=False)
        assert (read.outward is read.inward) == graph.undirected
        assert read.inward.num_edges == local.inward.num_edges
        kinds = set()
        for sent in (read, least_rows(read, comm, always=True)):
            buffers = HaloBuffers(limit)
            kinds |= check_linear(comm, graph, sent, FullHalo(sent, comm, buffers))
            assert buffers.nbytes <= buffers.limit
        if len(node.ranks) == comm.size:
            assert read.inward.plan.num_halo == read.outward.plan.num_boundary == 0
            assert not {kind for kind in kinds if kind.startswith("halo")}


def test_nothing_is_sent_and_nothing_copied(comm, graph):
    """A layer's matrices are read as they are: after two epochs none is added, and all are known."""
    trainer = build_trainer(comm, configure(graph, model="sage", intra_node="shared"), "metis")
    waits = [entry for kind, entry in traffic_of(trainer, 0).items() if kind.startswith("halo")]
    trainer.step(1)
    before = trainer.views.in_place.own_bytes
    trainer.step(2)
    assert len(waits) == 2 and not any(entry.messages for entry in waits), "of both directions"
    # Outputs of both hidden layers; the logits before and after they are summed, or their gradient.
    nodes = trainer.local.num_nodes
    matrices = [rounded(4 * nodes * width + 64 * comm.size) for width in (16, 16, 5, 5)]
    assert trainer.views.in_place.own_bytes == before == sum(matrices) // comm.size


def test_a_matrix_that_one_rank_still_holds_is_not_used_again(comm, node):
    """As where the collector of garbage has not come to it on that rank."""
    rows = SharedRows(node)
    spread = rows.spread(1000)
    first = rows.empty(spread, 8, torch.float32).fill_(comm.rank)
    late = [first] if node.place == 0 else []
    del first
    second = rows.empty(spread, 8, torch.float32).fill_(-1)
    found, _ = rows.open(spread, second)
    assert (found == -1).all() and all((each == comm.rank).all() for each in late)
    rows.close()
    late.clear()
    before = rows.own_bytes
    third = rows.empty(spread, 8, torch.float32)
    assert rows.own_bytes == before and third.data_ptr() != second.data_ptr()


def test_the_choice(comm, graph, session_path, node):
    """Unasked, ranks read in place where whole nodes need fewer rows of each other, and send messages elsewhere."""
    several = 1 < max(comm.allgather_object(len(node.ranks))) < comm.size
    for options in ({"model": "gcn"}, {"model": "gat", "hidden": 4, "heads": 3}):
        config = configure(graph, **options)
        trainer = build_trainer(comm, config, "random-clusters")
        assert (trainer.views.in_place is not None) == trainer.plan.in_place == several
        assert trainer.plan.config.schedule.intra_node == ("shared" if several else "messages")
        if several:
            of_ranks, of_nodes = trainer.views.crossing
            assert 0 < of_nodes < of_ranks
        told = curve(comm, config.replace(intra_node="shared" if several else "messages"), "random-clusters", None, 3)
        assert (curve(comm, config, "random-clusters", None, 3) == told).all()
    path = small.stored(comm, session_path, "no edges")[2]
    assert not build_trainer(comm, configure(path, model="gcn"), "dealt").plan.in_place  # nothing is to be saved


@pytest.mark.processes
def test_where_it_may_pay(comm, graph, node, monkeypatch):
    """On one node, and between nodes of many ranks."""
    most = max(comm.allgather_object(len(node.ranks)))
    with GraphFile(graph) as file:
        decided = plan(configure(graph, model="gcn"), file.meta)
    for many in (2, 4):
        monkeypatch.setattr("hpcgnn.plan.run_plan.MANY_RANKS", many)
        assert bring_up._may_read_in_place(decided, comm) == (most > 1 and (most >= many or most == comm.size))
