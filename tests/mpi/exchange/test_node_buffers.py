"""Buffers that the ranks of a node share: they keep to the limit of these ranks, and results are right in small ones.

At 6 ranks "pairs" are three nodes of two ranks: lanes of very few rows fall on ranks unevenly (see env/test.sh).
"""

import graphs
import numpy as np
import oracle
import pytest
import torch
from asking import aggregate, attend

from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.exchange.node_rows import NodeRows
from hpcgnn.exchange.wire import Wire
from hpcgnn.graph.transforms.vertex_cover import least_rows
from hpcgnn.graph.transforms.within_node import within_node
from hpcgnn.ops.additive_attention import AttentionShape
from hpcgnn.ops.draws import Purpose, Randomness
from hpcgnn.ops.operators import Attention
from hpcgnn.schedules.full_halo import FullHalo

from .. import small
from ..gathering import whole
from ..linear import check_linear
from ..narrowing import DTYPES, exact_in_int8, row_bytes
from ..nodes import NODES, emulated
from ..ops.test_attention import KEY, P, right
from ..schedules.test_halo_dtype import SEED, arrived
from ..training import configure, curve, make_graphs

pytestmark = pytest.mark.ranks(3, 4, 6)

WAYS = ["pairs", "threes", "one alone"]


def split(comm, way):
    return emulated(comm, NODES[way](comm.rank))


def node_of(comm, way):
    return np.array([NODES[way](rank) for rank in range(comm.size)])


MAPS = ["dealt", "random", "one empty", "all on last"]
COUNTED = ["power law", "two cliques", "random undirected", "random directed weighted", "no edges"]


@pytest.fixture(params=WAYS)
def nodes(request, comm):
    """(the name of the way in which ranks make nodes, the NodeMemory of this rank)."""
    with split(comm, request.param) as memory:
        yield request.param, memory


@pytest.fixture(params=["pairs", "one alone"])
def uneven(request, comm):
    """The same, of two ways: nodes of as many ranks each, and not."""
    with split(comm, request.param) as memory:
        yield request.param, memory


def read(comm, memory, file, cluster_to_rank, cap=1 << 20, returns=False, widens=False):
    """The LocalGraph of ranks that read each other's rows in the memory of their node."""
    local = graphs.load(file, cluster_to_rank, comm, cap=cap)
    return within_node(local, NodeRows(memory), comm, returns, widens)


def between(graph, node):
    """{(node that sends, node that receives): edges (source, destination) between them, each once}."""
    pairs = {}
    for u, v in set(zip(graph.src.tolist(), graph.dst.tolist())):
        if node[u] != node[v]:
            pairs.setdefault((node[u], node[v]), set()).add((u, v))
    return pairs


def counted(pairs, count, number, size):
    """(rows that come at ring offsets 1, 2, …, rows that go), of a node, where `count` counts those of one pair."""
    offsets = range(1, size)
    return (
        [count(pairs.get(((number - k) % size, number), set())) for k in offsets],
        [count(pairs.get((number, (number + k) % size), set())) for k in offsets],
    )


def rows(edges):
    """Rows of an exchange of rows: the sources, each once."""
    return len({u for u, _ in edges})


def bytes_by_node(comm, kind, node):
    """((N,) sent, (N,) received): what the ledger has of the ranks of each node, since it was asked. Collective."""
    entry = comm.ledger.take().get(kind)
    every = comm.allgather_object((entry.bytes_sent, entry.bytes_received) if entry else (0, 0))
    return tuple(np.bincount(node, [each[side] for each in every]).astype(int).tolist() for side in (0, 1))


def bytes_of(pairs, count, size, row_bytes):
    """The same of an exchange of what `count` counts of each of the pairs."""
    rows_of = {pair: count(edges) * row_bytes for pair, edges in pairs.items()}
    return tuple(
        [sum(each for pair, each in rows_of.items() if pair[side] == number) for number in range(size)]
        for side in (0, 1)
    )


@pytest.mark.parametrize("turns", [1, 3])
def test_small_buffers(comm, session_path, nodes, turns):
    """Rounds of few rows, and buffers that have room for one of them: a node takes no more than its ranks together."""
    _, memory = nodes
    for name in ("power law", "random directed weighted"):
        graph, where, file = small.stored(comm, session_path, name)
        for map_name in ("dealt", "one empty"):
            local = read(comm, memory, file, where.maps[map_name], cap=turns)
            for each in (local, least_rows(local, comm, always=True)):
                buffers = HaloBuffers(3 * turns * 3 * 8)
                check_linear(comm, graph, each, FullHalo(each, comm, buffers), norms=["sym"])
                assert buffers.nbytes <= buffers.limit


def policy_of(comm, local, dtype, limit):
    random = Randomness(SEED)
    wire = Wire(dtype, local.original_id, lambda number: random.key(Purpose.ROUNDING, number))
    return FullHalo(local, comm, HaloBuffers(limit), wire)


@pytest.mark.parametrize("dtype", DTYPES)
def test_narrowed_rows(comm, session_path, uneven, dtype):
    """Rows of other nodes are those of the oracle, narrowed after they were scaled; those of the own node are exact."""
    way, memory = uneven
    for name in ("star", "random directed weighted"):
        graph, where, file = small.stored(comm, session_path, name)
        a = oracle.adjacency(graph.num_nodes, graph.src, graph.dst, graph.weight)
        degree_in, degree_out = (np.where(d > 0, d, np.inf) ** -0.5 for d in (a.sum(1), a.sum(0)))
        for map_name, width, cap in (("dealt", 7, 1000), ("random", 5, 3), ("one empty", 16, 1)):
            local = read(comm, memory, file, where.maps[map_name], cap, widens=True)
            node = node_of(comm, way)[where.owner(map_name)]
            near = a * (node[:, None] == node[None, :])
            far = a - near
            random = np.random.default_rng(width)
            x, gy = random.standard_normal((2, graph.num_nodes, width))
            policy = policy_of(comm, local, dtype, 4 * cap * (8 * width + 8))
            mine = torch.from_numpy(x[local.original_id.numpy()]).requires_grad_()
            y = aggregate(policy, mine, "sym")
            y.backward(torch.from_numpy(gy[local.original_id.numpy()]))
            sx, rg = degree_out[:, None] * x, degree_in[:, None] * gy
            expected = degree_in[:, None] * (near @ sx + far @ arrived(dtype, sx, 1))
            gradient = degree_out[:, None] * (near.T @ rg + far.T @ arrived(dtype, rg, 2))
            tolerance = 1e-5 if dtype.startswith("int") else 1e-9  # as in test_halo_dtype.py
            np.testing.assert_allclose(whole(comm, local, y), expected, rtol=0, atol=tolerance)
            np.testing.assert_allclose(whole(comm, local, mine.grad), gradient, rtol=0, atol=tolerance)
            assert policy.inward.buffers.nbytes <= policy.inward.buffers.limit


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "int8"])
def test_what_returns_is_summed_in_the_node(comm, session_path, nodes, dtype):
    """Features and gradients that survive the narrowing give the exact result. For each row that comes, one returns."""
    shape, (way, memory) = AttentionShape(3, 4), nodes
    graph, where, file = small.stored(comm, session_path, "random directed")
    node = node_of(comm, way)
    for map_name, cap in (("dealt", 1000), ("one empty", 4)):
        local = read(comm, memory, file, where.maps[map_name], cap, returns=True, widens=dtype != "fp32")
        projected, gy = exact_in_int8(graph.num_nodes, shape)
        policy = policy_of(comm, local, dtype, 4 * cap * (8 * (shape.columns + 4 * shape.heads) + 32))
        mine = projected[local.original_id].requires_grad_()
        policy.operator(Attention(shape))
        comm.ledger.take()
        y = attend(policy, mine, shape, KEY, P)
        features = 8 * shape.columns if dtype == "fp32" else row_bytes(dtype, shape.columns)
        edges = between(graph, node[where.owner(map_name)]).values()
        come, back = sum(map(rows, edges)), sum(len({v for _, v in each}) for each in edges)
        assert sum(bytes_by_node(comm, "halo_forward", node)[0]) == come * (features + 8 * shape.heads)
        y.backward(gy[local.original_id])
        expected = back * (features + 3 * 8 * shape.heads) + back * 8 * shape.heads
        assert sum(bytes_by_node(comm, "halo_backward", node)[0]) == expected
        for found, wanted in zip((y, mine.grad), right(graph, shape, projected, gy, "keep", True)):
            most = 1e-9 * max(1, np.abs(wanted).max())
            np.testing.assert_allclose(whole(comm, local, found), wanted, rtol=0, atol=most)


MODELS = {
    "gcn": {"model": "gcn", "halo": "least"},
    "sage": {"model": "sage", "halo": "auto", "prune": "auto", "dropout": 0.5},
    "gin": {"model": "gin", "norm": "layer", "halo": "rows"},
    "sgc": {"model": "sgc", "layers": 2, "halo": "least"},
    "appnp": {"model": "appnp", "hops": 3, "halo": "auto"},
    "gat": {"model": "gat", "hidden": 4, "heads": 3},
}


@pytest.mark.parametrize("name", MODELS)
def test_models(comm, session_path, uneven, name):
    """Losses are those of messages but for rounding, with rounds of few rows and buffers of few rounds."""
    for graph in make_graphs(comm, session_path).values():
        messages, shared = (configure(graph, **MODELS[name], intra_node=how) for how in ("messages", "shared"))
        rows_of_buffers = None if name == "appnp" else 60  # its widest row is not known before it runs
        expected, found = (curve(comm, config, "random-clusters", rows_of_buffers, 5) for config in (messages, shared))
        assert (np.abs(found - expected) <= 2e-4 * np.abs(expected)).all()


@pytest.mark.parametrize("dtype", ["bf16", "int8"])
def test_training_with_narrowed_rows(comm, session_path, uneven, dtype):
    """Fewer rows are narrowed than between ranks: the loss falls as with whole rows."""
    graph = make_graphs(comm, session_path)["undirected"]
    for options in ({"model": "sage", "halo": "auto"}, {"model": "gat", "hidden": 4, "heads": 3}):
        whole_rows = curve(comm, configure(graph, **options, intra_node="shared"), "random-clusters", 60, 6)
        config = configure(graph, **options, intra_node="shared", halo_dtype=dtype)
        found, again = (curve(comm, config, "random-clusters", 60, 6) for _ in range(2))
        assert (found == again).all()
        assert (found != whole_rows).any() == (len(set(node_of(comm, uneven[0]))) > 1)
        assert (np.abs(found - whole_rows) <= 0.05 * whole_rows[0]).all()
