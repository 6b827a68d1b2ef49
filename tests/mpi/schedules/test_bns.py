"""Boundary sampling against oracles that drop the same nodes; bytes; its mean; its ends p = 0 and p = 1."""

import math

import graphs
import numpy as np
import oracle
import pytest
import torch
from asking import aggregate, attend

from hpcgnn.app.train import train
from hpcgnn.errors import ConfigError, HpcgnnError
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.exchange.wire import Wire
from hpcgnn.ops.additive_attention import AttentionShape
from hpcgnn.ops.draws import Randomness
from hpcgnn.ops.site import Facts
from hpcgnn.schedules.bns import SampledHalo

from ..gathering import whole
from ..ops.test_attention import KEY, P, right
from ..small import stored
from ..training import CLASSES, build_trainer, configure, make_graphs

SEED, BOUNDARY, RATE = 9, 7, 0.4


def make_policy(comm, local, rate, halo_buffer=1 << 20, epoch=0):
    """(policy, random) in an epoch."""
    random = Randomness(SEED)
    policy = SampledHalo(local, comm, HaloBuffers(halo_buffer), Wire(), Facts(local, comm), random, rate)
    begin(policy, random, epoch)
    return policy, random


def begin(policy, random, epoch):
    random.epoch = epoch
    policy.begin_epoch(epoch)


def kept_by(n, owner, size, epoch, rate):
    """bool (n, size): whether each node, by original id, is used by each other rank in an epoch."""
    kept = np.ones((n, size), bool)
    for q in range(size):
        for p in range(size):
            key = oracle.stream_key(oracle.stream_key(SEED, epoch, 0, BOUNDARY), q, p)
            mine = np.flatnonzero(owner == q)
            if p != q:
                kept[mine, p] = oracle.random_words(key, mine.astype(np.int64), 1)[:, 0] < round(rate * 2**32)
    return kept


def sampled_rows(src, dst, owner, kept, rank):
    """Distinct (node, rank) pairs that this rank sends rows for."""
    return len({(s, owner[d]) for s, d in zip(src, dst) if owner[s] == rank != owner[d] and kept[s, owner[d]]})


@pytest.mark.parametrize("name", ["star", "no edges", "random undirected weighted", "random directed weighted"])
def test_aggregation(comm, session_path, name):
    """y = M x and gx = Mᵀ gy with the sampled matrix M, of true degrees, and only sampled rows travel."""
    graph, where, file = stored(comm, session_path, name)
    matrix = oracle.operator(oracle.adjacency(graph.num_nodes, graph.src, graph.dst, graph.weight), "sym")
    for map_name, rows, epoch in (("dealt", 1000, 0), ("random", 3, 5), ("one empty", 1, 6)):
        local, owner = graphs.load(file, where.maps[map_name], comm, cap=rows), where.owner(map_name)
        kept, far = kept_by(graph.num_nodes, owner, comm.size, epoch, RATE), owner[:, None] != owner[None, :]
        sample = matrix * np.where(far, kept[:, owner].T / RATE, 1.0)
        x, gy = np.random.default_rng(epoch).standard_normal((2, graph.num_nodes, 3))
        policy, _ = make_policy(comm, local, RATE, 4 * rows * 3 * 8, epoch)
        mine = torch.from_numpy(x[local.original_id.numpy()]).requires_grad_()
        comm.ledger.take()
        y = aggregate(policy, mine, "sym")
        y.backward(torch.from_numpy(gy[local.original_id.numpy()]))
        traffic = comm.ledger.take()
        np.testing.assert_allclose(whole(comm, local, y), sample @ x, rtol=0, atol=1e-9)
        np.testing.assert_allclose(whole(comm, local, mine.grad), sample.T @ gy, rtol=0, atol=1e-9)
        for kind, sent, received in (
            ("halo_forward", *rows_of(graph, owner, kept, comm)),
            ("halo_backward", *rows_of(graph, owner, kept, comm)[::-1]),
        ):
            entry = traffic.pop(kind, None)
            counts = (entry.bytes_sent, entry.bytes_received) if entry else (0, 0)
            assert counts == (24 * sent, 24 * received), kind
            if entry and rows == 1000:
                assert entry.messages <= comm.size - 1
        assert not traffic and policy.buffers.nbytes <= policy.buffers.limit


def rows_of(graph, owner, kept, comm):
    """(rows sent, rows received) forwards; backwards it is the other way round."""
    sent = comm.allgather_object(sampled_rows(graph.src, graph.dst, owner, kept, comm.rank))[comm.rank]
    received = len(
        {s for s, d in zip(graph.src, graph.dst) if owner[d] == comm.rank != owner[s] and kept[s, comm.rank]}
    )
    return sent, received


@pytest.mark.parametrize("shape", [AttentionShape(3, 4), AttentionShape(2, 3, average=True)], ids=str)
@pytest.mark.parametrize("name", ["star", "random directed"])
def test_attention(comm, session_path, name, shape):
    """The softmax over own and sampled edges, −log p on the logits of the latter; gradients are its own, dropout
    included.
    """
    graph, where, file = stored(comm, session_path, name)
    for map_name, rows, epoch in (("dealt", 1000, 0), ("one empty", 2, 1)):
        local, owner = graphs.load(file, where.maps[map_name], comm, cap=rows, self_loops="add"), where.owner(map_name)
        kept = kept_by(graph.num_nodes, owner, comm.size, epoch, RATE)
        random = np.random.default_rng(epoch)
        projected = torch.from_numpy(random.standard_normal((graph.num_nodes, shape.columns + 2 * shape.heads)))
        gy = random.standard_normal((graph.num_nodes, shape.width if shape.average else shape.columns))
        gy = torch.from_numpy(gy)

        def used(src, dst):
            return kept[src, owner[dst]], np.where(owner[src] != owner[dst], -math.log(RATE), 0.0)

        width = shape.columns + shape.heads
        policy, _ = make_policy(comm, local, RATE, 4 * rows * 2 * width * 8, epoch)
        mine = projected[local.original_id].requires_grad_()
        comm.ledger.take()
        y = attend(policy, mine, shape, KEY, P)
        y.backward(gy[local.original_id])
        traffic = comm.ledger.take()
        for found, expected in zip((y, mine.grad), right(graph, shape, projected, gy, "add", True, used)):
            np.testing.assert_allclose(whole(comm, local, found), expected, rtol=0, atol=1e-9)
        sent, received = rows_of(graph, owner, kept, comm)
        forward, backward = (traffic[k].bytes_sent if k in traffic else 0 for k in ("halo_forward", "halo_backward"))
        assert (forward, backward) == (8 * width * sent, 8 * width * (sent + received))
        assert policy.buffers.nbytes <= policy.buffers.limit


def test_right_in_the_mean(comm, session_path):
    """Over many epochs the aggregate and the gradient tend to those of all neighbours; and every epoch has its own
    sample.
    """
    graph, where, file = stored(comm, session_path, "power law")
    matrix = oracle.operator(oracle.adjacency(graph.num_nodes, graph.src, graph.dst), "mean")
    local, owner = graphs.load(file, where.maps["dealt"], comm), where.owner("dealt")
    policy, random = make_policy(comm, local, RATE)
    x = np.random.default_rng(0).standard_normal((graph.num_nodes, 4))
    mine = torch.from_numpy(x[local.original_id.numpy()])
    times, found = 60, []
    for epoch in range(times):
        begin(policy, random, epoch)
        leaf = mine.clone().requires_grad_()
        y = aggregate(policy, leaf, "mean")
        y.backward(mine)
        found.append(torch.cat([y.detach(), leaf.grad], 1))
    mean = whole(comm, local, torch.stack(found).mean(0))
    far = matrix * (owner[:, None] != owner[None, :])
    deviation = [np.sqrt((m**2) @ (x**2) * (1 / RATE - 1) / times) for m in (far, far.T)]
    for part, expected, sigma in zip(np.split(mean, 2, 1), (matrix @ x, matrix.T @ x), deviation):
        assert (np.abs(part - expected) <= 5.5 * sigma + 1e-9).all()
    assert comm.size == 1 or len({each.numpy().tobytes() for each in found}) > 1 or not local.inward.plan.num_halo


MODELS = {
    "gcn": {},
    "gat": {"hidden": 4, "heads": 3, "attention_dropout": 0.3},
}


@pytest.mark.parametrize("model", MODELS)
def test_the_ends(comm, session_path, model):
    """p = 1 trains as sar does; p = 0 sends nothing in a step once the input is aggregated; evaluation uses all
    nodes.
    """
    path = make_graphs(comm, session_path, nodes=300)["directed multi-label"]
    options = {"model": model, "dropout": 0.5, **MODELS[model]}
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
    evaluated = []
    for trainer in (sar, one, none):
        trainer.evaluate()  # the original ids of the halo are fetched once
        comm.ledger.take()
        metrics = trainer.evaluate()
        evaluated.append((metrics if trainer is not none else None, comm.ledger.take()["evaluation"].bytes_sent))
        assert trainer.buffers.nbytes <= trainer.buffers.limit
    assert len({sent for _, sent in evaluated}) == 1
    for split, value in evaluated[0][0].items():
        assert evaluated[1][0][split] == pytest.approx(value, abs=0.02)


@pytest.mark.smoke
def test_a_part_of_the_bytes_and_learning(comm, session_path):
    """With int8 on top; the loss falls."""
    path = make_graphs(comm, session_path, nodes=900)["undirected"]
    config = configure(path, schedule="bns", boundary_rate=0.2, halo_dtype="int8", hidden=16, dropout=0.0)
    trainer = build_trainer(comm, config, "metis", rows=50)
    losses, forward, all_rows = [], [], trainer.schedule.halo.exact.inward.plan.num_boundary
    for epoch in range(10):
        comm.ledger.take()
        losses.append(trainer.step(epoch))
        step = comm.ledger.take()
        sent = trainer.schedule.halo.training.plan.num_boundary
        expected = sent * (16 + 4 + CLASSES + 4)
        assert (step["halo_forward"].bytes_sent if "halo_forward" in step else 0) == expected
        forward.append(sent)
    assert losses[-1] < 0.9 * losses[0]
    if all_rows > 50:
        assert 0.15 < sum(forward) / (10 * all_rows) < 0.25 and len(set(forward)) > 1


BAD = [
    ({"boundary_rate": 1.5}, "--boundary-rate: expected at least 0.0 and at most 1.0, got 1.5"),
    ({"boundary_rate": -0.1}, "--boundary-rate: expected at least 0.0"),
    ({"boundary_rate": float("nan")}, "--boundary-rate: expected at least 0.0"),
    ({"halo_dtype": "int3"}, "--halo-dtype: expected one of fp32, bf16, int8"),
]


@pytest.mark.parametrize("options, words", BAD, ids=[words.split(":")[0] + str(i) for i, (_, words) in enumerate(BAD)])
def test_bad_options(options, words):
    with pytest.raises(ConfigError) as caught:
        configure("g.h5", schedule="bns", **options)
    assert words in str(caught.value)


@pytest.mark.parametrize("options", [{"model": "gatv2"}, {"model": "sage", "aggregator": "max"}], ids=str)
def test_models_that_it_is_not_for(comm, session_path, shared_path, job_session, options):
    path = make_graphs(comm, session_path, nodes=300)["undirected"]
    config = configure(path, schedule="bns", run_dir=str(shared_path / "run"), partition="metis", **options)
    with pytest.raises(HpcgnnError, match="--schedule bns is not for models .* expected gcn, sage") as caught:
        train(config, job_session)
    assert caught.value.everywhere and not (shared_path / "run").exists()
