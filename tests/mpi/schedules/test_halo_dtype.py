"""Narrowed rows against oracles that narrow the same rows: values, bytes, buffers; what may not be narrowed is not."""

import graphs
import numpy as np
import oracle
import pytest
import torch
from asking import aggregate, attend

from hpcgnn.app.train import train
from hpcgnn.errors import HpcgnnError
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.exchange.wire import Wire
from hpcgnn.ops.additive_attention import AttentionShape
from hpcgnn.ops.draws import Purpose, Randomness
from hpcgnn.ops.operators import Attention
from hpcgnn.schedules.full_halo import FullHalo

from ..gathering import whole
from ..narrowing import DTYPES, exact_in_int8, narrowed, row_bytes, steps
from ..ops.test_attention import KEY, P, right
from ..small import stored
from ..training import CLASSES, FEATURES, build_trainer, configure, make_graphs

SEED, ROUNDING = 7, 6


def make_policy(comm, local, dtype, halo_buffer):
    random = Randomness(SEED)
    wire = Wire(dtype, local.original_id, lambda number: random.key(Purpose.ROUNDING, number))
    return FullHalo(local, comm, HaloBuffers(halo_buffer), wire)


def arrived(dtype, x, draw):
    """x (n, F) as it arrives, by the definition: float64. draw: the number of the stream, counted from 1."""
    key = oracle.stream_key(SEED, 0, draw, ROUNDING)
    return narrowed(dtype, x, oracle.random_words(key, np.arange(len(x), dtype=np.int64), x.shape[1]))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["star", "two cliques", "random directed weighted"])
def test_aggregation(comm, session_path, name, dtype):
    """Remote rows are those of the oracle, narrowed after they were scaled; own rows are exact. Odd widths, pieces of
    peers.
    """
    graph, where, file = stored(comm, session_path, name)
    a = oracle.adjacency(graph.num_nodes, graph.src, graph.dst, graph.weight)
    degree_in, degree_out = (np.where(d > 0, d, np.inf) ** -0.5 for d in (a.sum(1), a.sum(0)))
    for map_name, width, rows in (("dealt", 7, 1000), ("random", 5, 3), ("one empty", 16, 1)):
        local, owner = graphs.load(file, where.maps[map_name], comm, cap=rows), where.owner(map_name)
        near = a * (owner[:, None] == owner[None, :])
        far = a - near
        random = np.random.default_rng(width)
        x, gy = random.standard_normal((2, graph.num_nodes, width))
        limit = 4 * rows * (8 * width + 8)
        policy = make_policy(comm, local, dtype, limit)
        mine = torch.from_numpy(x[local.original_id.numpy()]).requires_grad_()
        comm.ledger.take()
        y = aggregate(policy, mine, "sym")
        y.backward(torch.from_numpy(gy[local.original_id.numpy()]))
        traffic = comm.ledger.take()
        sx, rg = degree_out[:, None] * x, degree_in[:, None] * gy
        expected = degree_in[:, None] * (near @ sx + far @ arrived(dtype, sx, 1))
        gradient = degree_out[:, None] * (near.T @ rg + far.T @ arrived(dtype, rg, 2))
        # A draw that falls on the edge between two levels may fall either way in another order of rounding.
        tolerance = 1e-5 if dtype.startswith("int") else 1e-9
        np.testing.assert_allclose(whole(comm, local, y), expected, rtol=0, atol=tolerance)
        np.testing.assert_allclose(whole(comm, local, mine.grad), gradient, rtol=0, atol=tolerance)
        for kind, plan in (("halo_forward", local.inward.plan), ("halo_backward", local.outward.plan)):
            entry = traffic.pop(kind, None)
            sent, received = (entry.bytes_sent, entry.bytes_received) if entry else (0, 0)
            row = row_bytes(dtype, width)
            assert (sent, received) == (plan.num_boundary * row, plan.num_halo * row)
        assert not traffic and policy.inward.buffers.nbytes <= limit


@pytest.mark.parametrize("dtype", ["bf16", "int8"])
def test_only_features_of_attention_are_narrowed(comm, session_path, dtype):
    """Features and gradients that survive the narrowing give the exact result: nothing else was rounded. Bytes say the
    same.
    """
    shape = AttentionShape(3, 4)
    graph, where, file = stored(comm, session_path, "random directed")
    for map_name, rows in (("dealt", 1000), ("one empty", 4)):
        local = graphs.load(file, where.maps[map_name], comm, cap=rows)
        projected, gy = exact_in_int8(graph.num_nodes, shape)
        policy = make_policy(comm, local, dtype, 4 * rows * (8 * (shape.columns + 4 * shape.heads) + 32))
        mine = projected[local.original_id].requires_grad_()
        policy.operator(Attention(shape))  # the ids of the halo are fetched once, before
        comm.ledger.take()
        y = attend(policy, mine, shape, KEY, P)
        y.backward(gy[local.original_id])
        traffic = comm.ledger.take()
        for found, expected in zip((y, mine.grad), right(graph, shape, projected, gy, "keep", True)):
            np.testing.assert_allclose(
                whole(comm, local, found), expected, rtol=0, atol=1e-9 * max(1, np.abs(expected).max())
            )
        features = row_bytes(dtype, shape.columns)
        forward, backward = (traffic[k].bytes_sent if k in traffic else 0 for k in ("halo_forward", "halo_backward"))
        out = local.outward.plan
        assert forward == local.inward.plan.num_boundary * (features + 8 * shape.heads)
        assert backward == out.num_boundary * (features + 3 * 8 * shape.heads) + out.num_halo * 8 * shape.heads


def test_right_in_the_mean(comm, session_path):
    """The errors of all rows together, over many draws, within five standard deviations, which the definition gives: a
    thirtieth of a step. Columns of one sign each would show a bias to zero as well as one up or down.
    """
    graph, where, file = stored(comm, session_path, "power law")
    local, owner = graphs.load(file, where.maps["dealt"], comm), where.owner("dealt")
    random, times, n = Randomness(SEED), 100, graph.num_nodes
    wire = Wire("int8", local.original_id, lambda number: random.key(Purpose.ROUNDING, number))
    policy = FullHalo(local, comm, HaloBuffers(1 << 16), wire)
    x = np.abs(np.random.default_rng(1).standard_normal((n, 6))) * np.repeat([1.0, -1.0], 3)
    mine, total = torch.from_numpy(x[local.original_id.numpy()]), 0
    for epoch in range(times):
        random.epoch = epoch
        policy.begin_epoch(epoch)
        total = total + whole(comm, local, aggregate(policy, mine, "mean"))
    a = oracle.operator(oracle.adjacency(n, graph.src, graph.dst), "mean")
    errors = total / times - a @ x
    if comm.size == 1:
        assert np.abs(errors).max() <= 1e-9
        return
    # What a remote row counts in the sum over all rows, and the variance of its rounding: step² p (1 - p).
    counts = (a * (owner[:, None] != owner[None, :])).sum(0)[:, None]
    step = steps(x)
    share = x / step - np.floor(x / step)
    for columns in (slice(0, 3), slice(3, 6)):
        deviation = np.sqrt((counts**2 * step**2 * share * (1 - share))[:, columns].sum() / times)
        assert 0 < 5 * deviation < (counts * step).sum() * 3 / 30, "a bias of a thirtieth of a step would be seen"
        assert abs(errors[:, columns].sum()) <= 5 * deviation


MODELS = {
    "gcn": ({"hidden": 15}, ("bf16", "int8"), 15 + CLASSES),
    "sage pool": ({"model": "sage", "aggregator": "pool"}, ("bf16",), None),
    "gat": ({"hidden": 4, "heads": 3}, ("int8",), None),
    "gatv2": ({"hidden": 4, "heads": 3}, ("int8",), None),
}

#: How far the loss may be from that of fp32.
CLOSE = {"bf16": 0.02, "int8": 0.1}


@pytest.mark.parametrize("model", MODELS)
def test_training_and_evaluation(comm, session_path, model):
    """The curve stays near that of fp32 in small buffers; evaluation and the kept input are sent exactly."""
    path = make_graphs(comm, session_path, nodes=300)["undirected"]
    options, dtypes, widths = MODELS[model]
    curves = {}
    for dtype in ("fp32", *dtypes):
        config = configure(path, **{"model": model.split()[0], "dropout": 0.0, **options}, halo_dtype=dtype)
        trainer = build_trainer(comm, config, "metis", rows=20)
        comm.ledger.take()
        losses = [trainer.step(0)]
        traffic = comm.ledger.take()
        if widths:
            sent, entry = trainer.constants and trainer.schedule.halo, traffic.get("halo_forward")
            plan = getattr(sent, "training", sent).inward.plan
            width = [widths - CLASSES, CLASSES]
            row = sum(4 * w if dtype == "fp32" else row_bytes(dtype, w) for w in width)
            assert (entry.bytes_sent if entry else 0) == plan.num_boundary * row
            kept = traffic["input"].bytes_sent if "input" in traffic else 0
            assert kept == plan.num_boundary * 4 * FEATURES
        losses += [trainer.step(epoch) for epoch in range(1, 4)]
        curves[dtype] = np.array(losses)
        first, again = trainer.evaluate(), trainer.evaluate()
        assert first == again
        evaluated = comm.ledger.take()["evaluation"].bytes_sent if comm.size > 1 else 0
        assert evaluated >= (2 * plan.num_boundary * 4 * sum(width) if widths else 0)
        assert trainer.buffers.nbytes <= trainer.buffers.limit
    for dtype in dtypes:
        assert np.abs(curves[dtype] - curves["fp32"]).max() <= CLOSE[dtype]
        assert comm.size == 1 or (curves[dtype] != curves["fp32"]).any()


def test_random_rounding_is_refused_for_the_largest(comm, session_path, shared_path, job_session):
    path = make_graphs(comm, session_path, nodes=300)["undirected"]
    config = configure(
        path, model="sage", aggregator="max", halo_dtype="int8", run_dir=str(shared_path / "run"), partition="metis"
    )
    with pytest.raises(HpcgnnError, match="--halo-dtype int8 .* expected fp32 or bf16") as caught:
        train(config, job_session)
    assert caught.value.everywhere and not (shared_path / "run").exists()
