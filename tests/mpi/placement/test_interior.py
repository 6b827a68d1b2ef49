"""The order of a rank's nodes, and what follows from it: interior rows are done to the end while messages are on their
way, and sums are kept of the others alone.
"""

import graphs
import numpy as np
import pytest
import torch

import hpcgnn.memory.arena as arena
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.exchange.stream import Stream
from hpcgnn.memory.arena import GRAIN
from hpcgnn.ops.linear_aggregation import LinearAggregation
from hpcgnn.ops.row_tiles import tile_rows

from ..exchange.test_overlap import Noting
from ..gathering import whole
from ..small import GRAPHS, stored, written

WIDTH, ROWS = 5, 3
RINGS, LENGTH = 9, 400
NEARBY = graphs.with_task(graphs.rings(RINGS, LENGTH), num_features=4)


@pytest.fixture(scope="module")
def nearby(comm, session_path):
    """Rings of nodes, each on one rank, of which few nodes have edges to other rings."""
    offsets, owner = np.arange(RINGS + 1) * LENGTH, np.arange(RINGS, dtype=np.int32) % comm.size
    where = graphs.Layout(np.arange(NEARBY.num_nodes), offsets, {"rings": owner})
    file = written(comm, session_path, NEARBY, "interior", where=where)[2]
    return graphs.load(file, owner, comm, cap=ROWS)


@pytest.mark.parametrize("loops", ["keep", "add"])
@pytest.mark.parametrize("name", GRAPHS)
def test_nodes_with_edges_across_come_first_and_both_parts_keep_the_order_of_the_file(comm, session_path, name, loops):
    graph, where, file = stored(comm, session_path, name)
    for kind in where.maps:
        local, owner = graphs.load(file, where.maps[kind], comm, self_loops=loops, keep_edges=True), where.owner(kind)
        across = owner[graph.src] != owner[graph.dst]
        outer = np.zeros(graph.num_nodes, bool)
        outer[graph.src[across]] = outer[graph.dst[across]] = True
        mine = where.order[owner[where.order] == comm.rank]
        assert local.original_id.tolist() == [*mine[outer[mine]], *mine[~outer[mine]]]
        for adjacency in (local.inward, local.outward):
            stream = Stream(adjacency.own, adjacency.halo, adjacency.plan, HaloBuffers(0), comm)
            assert stream.edges.first_interior <= outer[mine].sum()
            sent = [adjacency.plan.rows_to(k) for k in range(1, comm.size)]
            assert all(int(rows.max()) < outer[mine].sum() for rows in sent if len(rows))
            assert all((torch.diff(rows) > 0).all() for rows in sent), "packed in the order of memory"
        np.testing.assert_array_equal(whole(comm, local, local.features), graph.features)
        np.testing.assert_array_equal(whole(comm, local, local.labels), graph.labels)
        np.testing.assert_array_equal(whole(comm, local, local.split), graph.split)


def operator_of(local, comm, scaled=True):
    buffers, streams = HaloBuffers(4 * ROWS * WIDTH * 8), []
    for adjacency in (local.inward, local.outward):
        streams.append(Stream(adjacency.own, adjacency.halo, adjacency.plan, buffers, comm))
    factors = torch.arange(1.0, local.num_owned + 1, dtype=torch.float64)
    return LinearAggregation(*streams, *((1 / factors, factors) if scaled else (None, None)))


def tiles(parts):
    return (tile for part in parts for tile in part.tiles())


def test_interior_rows_come_while_messages_are_on_their_way(comm, nearby):
    local = nearby
    noting = Noting(comm)
    operator = operator_of(local, noting, scaled=False)
    for rows, _ in tiles(operator.parts(torch.ones(local.num_owned, WIDTH, dtype=torch.float64))):
        noting.events.append(("tile", rows.start >= operator.forward.stream.edges.first_interior))
    what = [event if event[0] == "tile" else event[0] for event in noting.events]
    inner, outer = ([at for at, event in enumerate(what) if event == ("tile", kind)] for kind in (True, False))
    assert inner and (comm.size == 1) == (not outer)
    if comm.size == 1:
        return
    waits = [at for at, (name, of) in enumerate(noting.events) if name == "wait" and of[0] == "receive"]
    assert len(waits) > 1 and any(at < waits[-1] for at in inner), "between the messages"
    assert max(waits) < min(outer) and max(inner) < min(outer), "sums are complete when the last has come"


@pytest.mark.parametrize("lent", [False, True])
def test_no_sum_of_an_interior_row_is_kept(comm, nearby, lent, monkeypatch):
    monkeypatch.setattr(arena, "SMALL", 0)
    local = nearby
    operator = operator_of(local, comm)
    x = torch.ones(local.num_owned, WIDTH, dtype=torch.float64)
    y = torch.empty_like(x) if lent else None
    operator.arena.mark()
    before = operator.arena.taken
    for _ in tiles(operator.parts(x, True, y)):
        pass
    kept, tile = operator.adjoint.stream.edges.first_interior, min(tile_rows(), local.num_owned)
    pages = [-(-rows * WIDTH * 8 // GRAIN) * GRAIN for rows in (kept, tile)]
    assert operator.arena.most - before == pages[1] + (0 if lent else pages[0])
    assert kept * 2 < local.num_owned, "more are interior"
