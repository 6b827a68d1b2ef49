"""Narrowed rows against oracles that narrow the same rows: values, bytes, buffers; other rows stay exact.

Ranks send their own rows, or ranks of a node read each other's in place, and only rows of other nodes are narrowed.
"""

import graphs
import numpy as np
import oracle
import pytest
from asking import aggregate, attend

from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.exchange.nodes import SharedRows
from hpcgnn.exchange.row_codec import RowCodec
from hpcgnn.graph.transforms.within_node import within_node
from hpcgnn.ops.additive_attention import AttentionShape
from hpcgnn.ops.draws import Purpose, Randomness
from hpcgnn.ops.operators import Attention
from hpcgnn.schedules.full_halo import FullHalo

from ..gathering import both_ways, check_rows, sent_both_ways
from ..narrowing import DTYPES, exact_in_int8, narrowed, row_bytes
from ..nodes import NODES, emulated
from ..ops.test_attention import KEY, P, right
from ..small import stored

pytestmark = pytest.mark.ranks(1, 2, 3, 4, 6)
SEED, ROUNDING = 7, 6


@pytest.fixture(params=[None, "pairs", "one alone"])
def nodes(request, comm):
    """(the node of each rank; share(local, …): the LocalGraph of ranks that read the rows of their node in place)."""
    if request.param is None:
        yield np.arange(comm.size), lambda local, *given: local
        return
    with emulated(comm, NODES[request.param](comm.rank)) as memory:
        node = np.array([NODES[request.param](rank) for rank in range(comm.size)])
        yield node, lambda local, *given: within_node(local, SharedRows(memory), comm, *given)


def make_policy(comm, local, dtype, halo_buffer):
    random = Randomness(SEED)
    wire = RowCodec(dtype, local.original_id, lambda number: random.key(Purpose.ROUNDING, number))
    return FullHalo(local, comm, HaloBuffers(halo_buffer), wire)


def arrived(dtype, x, draw):
    """x (n, F) as it arrives, by the definition: float64. draw: the number of the stream, counted from 1."""
    key = oracle.stream_key(SEED, 0, draw, ROUNDING)
    return narrowed(dtype, x, oracle.random_words(key, np.arange(len(x), dtype=np.int64), x.shape[1]))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["star", "two cliques", "random directed weighted"])
def test_aggregation(comm, session_path, nodes, name, dtype):
    """Remote rows equal the oracle's, narrowed after scaling; own rows are exact. Odd widths, pieces of peers."""
    graph, where, file = stored(comm, session_path, name)
    a = oracle.adjacency(graph.num_nodes, graph.src, graph.dst, graph.weight)
    degree_in, degree_out = (np.where(d > 0, d, np.inf) ** -0.5 for d in (a.sum(1), a.sum(0)))
    for map_name, width, rows in (("dealt", 7, 1000), ("random", 5, 3), ("one empty", 16, 1)):
        node_of, share = nodes[0][where.owner(map_name)], nodes[1]
        local = share(graphs.load(file, where.maps[map_name], comm, cap=rows), False, True)
        near = a * (node_of[:, None] == node_of[None, :])
        far = a - near
        x, gy = np.random.default_rng(width).standard_normal((2, graph.num_nodes, width))
        limit = 4 * rows * (8 * width + 8)
        policy = make_policy(comm, local, dtype, limit)
        y, gradient, traffic = both_ways(comm, local, lambda rows: aggregate(policy, rows, "sym"), x, gy)
        sx, rg = degree_out[:, None] * x, degree_in[:, None] * gy
        # A draw that falls on the edge between two levels may fall either way in another order of rounding.
        tolerance = 1e-5 if dtype.startswith("int") else 1e-9
        check_rows(comm, local, y, degree_in[:, None] * (near @ sx + far @ arrived(dtype, sx, 1)), tolerance)
        wanted = degree_out[:, None] * (near.T @ rg + far.T @ arrived(dtype, rg, 2))
        check_rows(comm, local, gradient, wanted, tolerance)
        for kind, plan in (("halo_forward", local.inward.plan), ("halo_backward", local.outward.plan)):
            entry = traffic.pop(kind, None)
            sent, received = (entry.bytes_sent, entry.bytes_received) if entry else (0, 0)
            row = row_bytes(dtype, width)
            if len(set(nodes[0])) == comm.size:  # of nodes, which share what they send: extras/estimate
                assert (sent, received) == (plan.num_boundary * row, plan.num_halo * row)
        assert not {kind for kind in traffic if kind.startswith("halo")} and policy.inward.buffers.nbytes <= limit


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "int8"])
def test_only_features_of_attention_are_narrowed(comm, session_path, nodes, dtype):
    """Features and gradients that survive the narrowing give the exact result: nothing else was rounded. Bytes, counted
    from the edges between nodes, say the same: for each row that comes one returns, summed in its node.
    """
    shape = AttentionShape(3, 4)
    graph, where, file = stored(comm, session_path, "random directed")
    for map_name, rows in (("dealt", 1000), ("one empty", 4)):
        node_of, share = nodes[0][where.owner(map_name)], nodes[1]
        local = share(graphs.load(file, where.maps[map_name], comm, cap=rows), True, dtype != "fp32")
        projected, gy = exact_in_int8(graph.num_nodes, shape)
        policy = make_policy(comm, local, dtype, 4 * rows * (8 * (shape.columns + 4 * shape.heads) + 32))
        policy.operator(Attention(shape))  # the ids of the halo are fetched once, before
        y, gradient, traffic = both_ways(comm, local, lambda rows: attend(policy, rows, shape, KEY, P), projected, gy)
        for found, wanted in zip((y, gradient), right(graph, shape, projected, gy, "keep", True)):
            check_rows(comm, local, found, wanted, 1e-9 * max(1, np.abs(wanted).max()))
        features = 8 * shape.columns if dtype == "fp32" else row_bytes(dtype, shape.columns)
        far = [(u, v) for u, v in zip(graph.src.tolist(), graph.dst.tolist()) if node_of[u] != node_of[v]]
        come, back = len({(u, node_of[v]) for u, v in far}), len({(v, node_of[u]) for u, v in far})
        every = comm.allgather_object(sent_both_ways(traffic))
        forward, backward = map(sum, zip(*every))
        assert forward == come * (features + 8 * shape.heads)
        assert backward == back * (features + 3 * 8 * shape.heads) + back * 8 * shape.heads
