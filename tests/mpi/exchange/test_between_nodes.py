"""What nodes of several ranks send, counted from the edges alone: each row, or one of a least cover, crosses once."""

import graphs
import numpy as np
import pytest
import torch
from asking import aggregate

from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.exchange.nodes import NodeRows
from hpcgnn.graph.transforms.vertex_cover import least_rows
from hpcgnn.graph.transforms.within_node import within_node
from hpcgnn.schedules.full_halo import FullHalo

from .. import small
from ..nodes import NODES, emulated
from .test_least import least

WIDTH = 5


@pytest.fixture(scope="module", params=["pairs", "two nodes", "threes", "one alone"])
def node(request, comm):
    """(the NodeMemory of this rank, int (P,): the node of each rank)."""
    with emulated(comm, NODES[request.param](comm.rank)) as memory:
        yield memory, np.array([NODES[request.param](rank) for rank in range(comm.size)])


@pytest.mark.parametrize("map_name", ["dealt", "one empty"])
@pytest.mark.parametrize("name", small.GRAPHS)
def test_what_nodes_send(comm, session_path, node, name, map_name):
    memory, of_rank = node
    graph, where, file = small.stored(comm, session_path, name)
    local = graphs.load(file, where.maps[map_name], comm, cap=1000)
    read = within_node(local, NodeRows(memory), comm, returns=False)
    node_of = of_rank[where.owner(map_name)]
    pairs = set(zip(graph.src.tolist(), graph.dst.tolist()))
    edges = {(a, b): [] for a in set(of_rank) for b in set(of_rank) if a != b}
    for u, v in pairs:
        if node_of[u] != node_of[v]:
            edges[node_of[u], node_of[v]].append((u, v))
    for sent, rows, rows_back in (
        (read, lambda found: len({u for u, _ in found}), lambda found: len({v for _, v in found})),
        (least_rows(read, comm, always=True), least, least),
    ):
        policy = FullHalo(sent, comm, HaloBuffers(1 << 20))
        x = torch.randn(local.num_owned, WIDTH, dtype=torch.float64, requires_grad=True)
        y = aggregate(policy, x, "sum")
        comm.ledger.take()
        y.sum().backward()
        back = comm.ledger.take()
        aggregate(policy, x.detach(), "sum")
        there = comm.ledger.take()
        for ledger, kind, expected in (
            (there, "halo_forward", {pair: rows(found) for pair, found in edges.items()}),
            (back, "halo_backward", {pair[::-1]: rows_back(found) for pair, found in edges.items()}),
        ):
            mine = ledger[kind] if kind in ledger else None
            took = (mine.bytes_sent // (8 * WIDTH), mine.messages) if mine else (0, 0)
            ranks = comm.allgather_object((int(of_rank[comm.rank]), *took))
            for number in set(of_rank):
                wanted = [count for pair, count in expected.items() if pair[0] == number]
                shares = [each for each in ranks if each[0] == number]
                assert sum(each[1] for each in shares) == sum(wanted), (kind, number)
                # Of what goes to each node, every rank of this one sends as much as the others, in one message.
                assert max(each[1] for each in shares) - min(each[1] for each in shares) <= len(wanted)
                assert max(each[2] for each in shares) == sum(count > 0 for count in wanted)
