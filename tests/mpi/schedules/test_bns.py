"""Boundary sampling against oracles that drop the same nodes; bytes; its ends p = 0 and p = 1."""

import math

import graphs
import numpy as np
import oracle
import pytest
from asking import aggregate, attend

from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.exchange.row_codec import RowCodec
from hpcgnn.ops.additive_attention import AttentionShape
from hpcgnn.ops.draws import Randomness
from hpcgnn.ops.operator_context import HaloFacts
from hpcgnn.schedules.bns import SampledHalo

from ..gathering import both_ways, check_rows, sent_both_ways
from ..ops.test_attention import KEY, P, random_inputs, right
from ..small import stored
from ..training import build_trainer, configure

SEED, BOUNDARY, RATE = 9, 7, 0.4


def make_policy(comm, local, halo_buffer, epoch):
    """The policy in an epoch."""
    random = Randomness(SEED)
    policy = SampledHalo(local, comm, HaloBuffers(halo_buffer), RowCodec(), HaloFacts(local, comm), random, RATE)
    random.epoch = epoch
    policy.begin_epoch(epoch)
    return policy


def kept_by(n, owner, size, epoch):
    """bool (n, size): whether each node, by original id, is used by each other rank in an epoch."""
    kept = np.ones((n, size), bool)
    for q in range(size):
        for p in range(size):
            key = oracle.stream_key(oracle.stream_key(SEED, epoch, 0, BOUNDARY), q, p)
            mine = np.flatnonzero(owner == q)
            if p != q:
                kept[mine, p] = oracle.random_words(key, mine.astype(np.int64), 1)[:, 0] < round(RATE * 2**32)
    return kept


def rows_of(graph, owner, kept, rank):
    """(rows sent, rows received) by a rank forwards; backwards it is the other way round."""
    pairs = {(s, owner[d]) for s, d in zip(graph.src, graph.dst) if owner[s] != owner[d] and kept[s, owner[d]]}
    return sum(owner[node] == rank for node, _ in pairs), sum(user == rank for _, user in pairs)


@pytest.mark.parametrize("name", ["star", "no edges", "random undirected weighted", "random directed weighted"])
def test_aggregation(comm, session_path, name):
    """y = M x and gx = Mᵀ gy with the sampled matrix M, of true degrees, and only sampled rows travel."""
    graph, where, file = stored(comm, session_path, name)
    matrix = oracle.operator(oracle.adjacency(graph.num_nodes, graph.src, graph.dst, graph.weight), "sym")
    for map_name, rows, epoch in (("dealt", 1000, 0), ("random", 3, 5), ("one empty", 1, 6)):
        local, owner = graphs.load(file, where.maps[map_name], comm, cap=rows), where.owner(map_name)
        kept, far = kept_by(graph.num_nodes, owner, comm.size, epoch), owner[:, None] != owner[None, :]
        sample = matrix * np.where(far, kept[:, owner].T / RATE, 1.0)
        x, gy = np.random.default_rng(epoch).standard_normal((2, graph.num_nodes, 3))
        policy = make_policy(comm, local, 4 * rows * 3 * 8, epoch)
        y, gradient, traffic = both_ways(comm, local, lambda own: aggregate(policy, own, "sym"), x, gy)
        check_rows(comm, local, y, sample @ x)
        check_rows(comm, local, gradient, sample.T @ gy)
        rows_sent = rows_of(graph, owner, kept, comm.rank)
        for kind, (sent, received) in (("halo_forward", rows_sent), ("halo_backward", rows_sent[::-1])):
            entry = traffic.pop(kind, None)
            counts = (entry.bytes_sent, entry.bytes_received) if entry else (0, 0)
            assert counts == (24 * sent, 24 * received), kind
            if entry and rows == 1000:
                assert entry.messages <= comm.size - 1
        assert not traffic and policy.buffers.nbytes <= policy.buffers.limit


@pytest.mark.parametrize("shape", [AttentionShape(3, 4), AttentionShape(2, 3, average=True)], ids=str)
@pytest.mark.parametrize("name", ["star", "random directed"])
def test_attention(comm, session_path, name, shape):
    """The softmax over own and sampled edges, −log p on the logits of the latter; gradients are its own, dropout
    included.
    """
    graph, where, file = stored(comm, session_path, name)
    for map_name, rows, epoch in (("dealt", 1000, 0), ("one empty", 2, 1)):
        local, owner = graphs.load(file, where.maps[map_name], comm, cap=rows, self_loops="add"), where.owner(map_name)
        kept = kept_by(graph.num_nodes, owner, comm.size, epoch)
        projected, gy = random_inputs(graph, shape, epoch)

        def used(src, dst):
            return kept[src, owner[dst]], np.where(owner[src] != owner[dst], -math.log(RATE), 0.0)

        width = shape.columns + shape.heads
        policy = make_policy(comm, local, 4 * rows * 2 * width * 8, epoch)
        y, gradient, traffic = both_ways(comm, local, lambda own: attend(policy, own, shape, KEY, P), projected, gy)
        for found, expected in zip((y, gradient), right(graph, shape, projected, gy, "add", True, used)):
            check_rows(comm, local, found, expected)
        sent, received = rows_of(graph, owner, kept, comm.rank)
        assert sent_both_ways(traffic) == [8 * width * sent, 8 * width * (sent + received)]
        assert policy.buffers.nbytes <= policy.buffers.limit


@pytest.mark.parametrize("model", ["gcn", "gat"])
def test_the_ends(comm, paths, model):
    """p = 1 trains as sar does; p = 0 sends nothing in a step once the input is aggregated. (Evaluation:
    ops/test_operators.py.)
    """
    path = paths["directed multi-label"]
    options = {"model": model, "dropout": 0.5, "hidden": 4, "heads": 3}
    options |= {"attention_dropout": 0.3} if model == "gat" else {}
    sar = build_trainer(comm, configure(path, **options), "random-clusters", rows=40)
    one, none = (
        build_trainer(comm, configure(path, **options, schedule="bns", boundary_rate=rate), "random-clusters", rows=40)
        for rate in (1.0, 0.0)
    )
    for epoch in range(2):
        assert one.step(epoch) == pytest.approx(sar.step(epoch), rel=2e-4)
        comm.ledger.take()
        assert math.isfinite(none.step(epoch))
        step = comm.ledger.take()
        assert not set(step) & {"halo_forward", "halo_backward"}
        assert epoch == 0 or "input" not in step
