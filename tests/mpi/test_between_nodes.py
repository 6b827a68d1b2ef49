"""What a node needs crosses the network once: rows and bytes between nodes counted by hand, results by the oracle."""

import graphs
import numpy as np
import oracle
import pytest
import torch
from asking import aggregate, attend

from hpcgnn.estimate.counts.shares import Counter
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.exchange.node_rows import NodeRows
from hpcgnn.exchange.wire import Wire
from hpcgnn.graph.transforms.vertex_cover import least_rows
from hpcgnn.graph.transforms.within_node import within_node
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.memory.resident import mapped_bytes
from hpcgnn.ops.additive_attention import AttentionShape
from hpcgnn.ops.draws import Purpose, Randomness
from hpcgnn.ops.operators import Attention
from hpcgnn.plugins.account import held_bytes
from hpcgnn.schedules.full_halo import FullHalo

from . import small
from .gathering import whole
from .linear import check_linear
from .narrowing import DTYPES, row_bytes
from .nodes import NODES, node_of, split
from .test_attention import KEY, P, right
from .test_halo_dtype import SEED, arrived
from .test_least import least
from .training import build_trainer, configure, curve, make_graphs

MAPS = ["dealt", "random", "one empty", "all on last"]
COUNTED = ["power law", "two cliques", "random undirected", "random directed weighted", "no edges"]


@pytest.fixture(params=NODES)
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


@pytest.mark.parametrize("name", COUNTED)
@pytest.mark.parametrize("sent", ["rows", "least"])
def test_a_node_gets_once_what_its_ranks_need(comm, session_path, nodes, name, sent):
    """The plan has as many rows for each pair of nodes as brute force; ranks send the bytes of these and no more."""
    graph, where, file = small.stored(comm, session_path, name)
    way, memory = nodes
    node, width = node_of(comm, way), 5
    size, count = node.max() + 1, rows if sent == "rows" else least
    for map_name in MAPS:
        owner = where.owner(map_name)
        pairs, per_rank = between(graph, node[owner]), between(graph, owner)
        local = read(comm, memory, file, where.maps[map_name])
        local = local if sent == "rows" else least_rows(local, comm, always=True)
        come, go = counted(pairs, count, node[comm.rank], size)
        plan, back = local.inward.plan, local.outward.plan
        assert plan.receive_counts.tolist() == come and plan.send_counts.tolist() == go
        other = {(b, a): {(v, u) for u, v in edges} for (a, b), edges in pairs.items()}
        assert back.receive_counts.tolist() == counted(other, count, node[comm.rank], size)[0]
        policy = FullHalo(local, comm, HaloBuffers(1 << 16))
        x = torch.randn(local.num_owned, width, dtype=torch.float64, requires_grad=True)
        comm.ledger.take()
        y = aggregate(policy, x, "sum")
        assert bytes_by_node(comm, "halo_forward", node) == bytes_of(pairs, count, size, width * 8)
        y.sum().backward()
        assert bytes_by_node(comm, "halo_backward", node) == bytes_of(other, count, size, width * 8)
        # Of ranks by themselves: what crosses between nodes alone.
        alone = sum(count(edges) for (p, q), edges in per_rank.items() if node[p] != node[q])
        total = sum(count(edges) for edges in pairs.values())
        assert total <= alone
        if (name, map_name) == ("power law", "dealt") and 1 < size < comm.size and (sent == "rows" or comm.size == 4):
            assert total < 0.9 * alone, "this graph has rows that several ranks of a node need"


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
        random = np.random.default_rng(3)
        projected = torch.from_numpy(random.standard_normal((graph.num_nodes, shape.columns + 2 * shape.heads)))
        gy = torch.from_numpy(random.integers(-127, 128, (graph.num_nodes, shape.columns))).double()
        projected[:, : shape.columns] = torch.from_numpy(random.integers(-127, 128, (graph.num_nodes, shape.columns)))
        projected[:, 0], gy[:, 0] = 127, 127  # the scale of a row is then 1
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


def test_nodes_of_one_rank_are_those_of_messages(comm, session_path):
    """Bit for bit."""
    graph = make_graphs(comm, session_path)["directed multi-label"]
    with split(comm, "all alone"):
        for options in ({"model": "sage", "halo": "auto"}, {"model": "gat", "hidden": 4, "heads": 2}):
            there, shared = (configure(graph, **options, intra_node=how) for how in ("messages", "shared"))
            assert (curve(comm, there, "metis", 300, 4) == curve(comm, shared, "metis", 300, 4)).all()


@pytest.mark.parametrize("way", ["pairs", "threes", "all alone"])
@pytest.mark.parametrize("halo", ["rows", "least"])
def test_counted_from_the_file(comm, session_path, way, halo):
    """The plan has what is counted from the file with nodes in place of ranks (jobs/bench/network/between_nodes.py)."""
    node = node_of(comm, way)
    for path in make_graphs(comm, session_path).values():
        with split(comm, way) as memory, GraphFile(path) as file:
            ranks = file.cluster_map("metis", comm.size)[0]
            local = read(comm, memory, path, ranks)
            local = local if halo == "rows" else least_rows(local, comm, always=True)
            shares = Counter(file, node[ranks].astype(np.int32), node.max() + 1, halo).shares()
        for plan, found in ((local.inward.plan, shares.inward), (local.outward.plan, shares.outward)):
            assert plan.num_halo == found.received[node[comm.rank]]
            assert plan.num_boundary == found.sent[node[comm.rank]]


def test_memory_in_common_is_counted_once(comm, session_path):
    """The account of all ranks together has what they share once, and nothing of it when nobody refers to it."""
    with split(comm, "pairs") as memory:
        rows = NodeRows(memory)
        kept, gone = rows.common(1000, torch.float64), rows.common(5000, torch.float64)
        kept[0] = gone[0] = 1.0
        ranks = len(memory.ranks)
        assert rows.common_bytes == 6000 * 8 // ranks and len(rows.common_addresses) == 2
        assert held_bytes(kept[5:], {("storage", address) for address in rows.common_addresses}) == 0
        resident = mapped_bytes(rows.common_addresses)
        shares = [nbytes // ranks for nbytes in (8000, 40000)]
        assert rows.foreign_bytes() == sum(max(0, size - own) for size, own in zip(resident, shares))
        del gone
        assert rows.common_bytes == 1000 * 8 // ranks and rows.common_addresses == [kept.data_ptr()]


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


@pytest.mark.parametrize("dtype", ["bf16", "int8", "auto"])
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


@pytest.mark.parametrize("halo", ["rows", "auto"])
def test_fewer_bytes_of_an_epoch(comm, session_path, nodes, halo):
    """An epoch of training: ranks send what the ledger of messages has between nodes, or less."""
    way, _ = nodes
    if way in ("one node", "all alone") or len(set(node_of(comm, way))) in (1, comm.size):
        return  # nothing crosses, or nothing is shared
    graph = make_graphs(comm, session_path)["undirected"]
    found = {}
    for how in ("messages", "shared"):
        trainer = build_trainer(comm, configure(graph, model="sage", halo=halo, intra_node=how), "random-clusters")
        trainer.step(0)
        comm.ledger.take()
        trainer.step(1)
        sent = sum(entry.bytes_sent for kind, entry in comm.ledger.take().items() if kind.startswith("halo"))
        plan, node = trainer.views.local.inward.plan, node_of(comm, way)
        if how == "messages":  # all rows are of one width in both ways: as many bytes as rows, by offset
            peers = node[(comm.rank + np.arange(1, comm.size)) % comm.size]
            sent *= plan.send_counts[peers != node[comm.rank]].sum() / plan.send_counts.sum()
        found[how] = comm.total(torch.tensor([float(sent)])).item()
    assert 0 < found["shared"] < found["messages"]
