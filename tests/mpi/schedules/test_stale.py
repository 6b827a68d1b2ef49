"""Delayed rows against oracles that remember: values, gradients, bytes, and what is saved."""

import json
from types import SimpleNamespace

import graphs
import numpy as np
import oracle
import pytest
import torch
from asking import aggregate, attend

from hpcgnn.app.train import train
from hpcgnn.engine.checkpoint import checkpoints
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.exchange.wire import Wire
from hpcgnn.ops.additive_attention import AttentionShape
from hpcgnn.ops.site import Facts
from hpcgnn.schedules.stale import StaleHalo

from ..gathering import whole
from ..ops.test_attention import KEY, P, edge_mask
from ..small import edges_of, stored
from ..training import configure, make_graphs

pytestmark = pytest.mark.ranks(2, 3)

EPOCHS = 5


def make_policy(comm, local, delay, limit=1 << 20):
    return StaleHalo(local, comm, HaloBuffers(limit), Wire(), Facts(local, comm), delay)


def used_in(epoch, delay):
    """The epoch whose rows are used."""
    return epoch if epoch < delay else epoch - delay


class Delayed:
    """The used one of a sequence of rows, epoch by epoch."""

    def __init__(self, delay):
        self.delay, self.seen = delay, []

    def __call__(self, value):
        self.seen.append(value)
        return self.seen[used_in(len(self.seen) - 1, self.delay)]


@pytest.mark.parametrize("delay", [1, 2])
@pytest.mark.parametrize("name", ["star", "no edges", "random directed weighted"])
def test_aggregation(comm, session_path, name, delay):
    graph, where, file = stored(comm, session_path, name)
    matrix = oracle.operator(oracle.adjacency(graph.num_nodes, graph.src, graph.dst, graph.weight), "sym")
    for map_name, rows in (("dealt", 1000), ("one empty", 2)):
        local, owner = graphs.load(file, where.maps[map_name], comm, cap=rows), where.owner(map_name)
        near = matrix * (owner[:, None] == owner[None, :])
        far = matrix - near
        policy = make_policy(comm, local, delay)
        ahead, home = Delayed(delay), Delayed(delay)
        for epoch in range(EPOCHS):
            x, gy = np.random.default_rng(epoch).standard_normal((2, graph.num_nodes, 3))
            policy.begin_epoch(epoch)
            comm.ledger.take()
            mine = torch.from_numpy(x[local.original_id.numpy()]).requires_grad_()
            y = aggregate(policy, mine, "sym")
            y.backward(torch.from_numpy(gy[local.original_id.numpy()]))
            traffic = comm.ledger.take()
            np.testing.assert_allclose(whole(comm, local, y), near @ x + far @ ahead(x), rtol=0, atol=1e-9)
            np.testing.assert_allclose(whole(comm, local, mine.grad), near.T @ gy + home(far.T @ gy), rtol=0, atol=1e-9)
            plan = local.inward.plan
            for kind, sent, peers in (
                ("halo_forward", plan.num_boundary, np.count_nonzero(plan.send_counts)),
                ("halo_backward", plan.num_halo, np.count_nonzero(plan.receive_counts)),
            ):
                entry = traffic.get(kind)
                assert ((entry.messages, entry.bytes_sent) if entry else (0, 0)) == (peers, 24 * sent)
        policy.state()


@pytest.mark.parametrize("shape", [AttentionShape(3, 4), AttentionShape(2, 3, average=True)], ids=str)
def test_attention(comm, session_path, shape):
    """y of own rows of now and others' of then; a gradient of remote rows is that of the whole softmax it was part
    of.
    """
    graph, where, file = stored(comm, session_path, "random directed")
    src, dst = edges_of(graph, "add")
    n, h, f, delay = graph.num_nodes, shape.heads, shape.columns, 1
    for map_name, rows in (("dealt", 1000), ("one empty", 2)):
        local, owner = graphs.load(file, where.maps[map_name], comm, cap=rows, self_loops="add"), where.owner(map_name)
        far = torch.from_numpy(owner[src] != owner[dst])[:, None]

        def layer(own, others):
            """y by all edges; rows of remote sources are those of `others`."""
            z = torch.where(far, others[src, :f], own[src, :f]).unflatten(1, (h, -1))
            a_src = torch.where(far, others[src, f : f + h], own[src, f : f + h])
            logit = torch.nn.functional.leaky_relu(own[dst, f + h :] + a_src, shape.slope)
            rows_of = torch.from_numpy(dst)
            weight = torch.exp(logit)
            alpha = weight / torch.zeros(n, h, dtype=torch.float64).index_add(0, rows_of, weight)[dst]
            alpha = alpha * edge_mask(src, dst, h)
            y = torch.zeros(n, h, shape.width, dtype=torch.float64).index_add(0, rows_of, alpha[..., None] * z)
            return y.mean(1) if shape.average else y.flatten(1)

        policy = make_policy(comm, local, delay)
        inputs, of_others = [], []
        for epoch in range(EPOCHS):
            random = np.random.default_rng(epoch)
            inputs.append(torch.from_numpy(random.standard_normal((n, f + 2 * h))))
            gy = torch.from_numpy(random.standard_normal((n, shape.width if shape.average else f)))
            own = inputs[epoch].clone().requires_grad_()
            others = inputs[used_in(epoch, delay)].clone().requires_grad_()
            expected = layer(own, others)
            g_own, g_others = torch.autograd.grad(expected, (own, others), gy, allow_unused=True)
            of_others.append(g_others)
            policy.begin_epoch(epoch)
            mine = inputs[epoch][local.original_id].requires_grad_()
            comm.ledger.take()
            y = attend(policy, mine, shape, KEY, P)
            y.backward(gy[local.original_id])
            traffic = comm.ledger.take()
            gradient = g_own + of_others[used_in(epoch, delay)]
            np.testing.assert_allclose(whole(comm, local, y), expected.detach().numpy(), rtol=0, atol=1e-9)
            np.testing.assert_allclose(whole(comm, local, mine.grad), gradient.numpy(), rtol=0, atol=1e-9)
            plan = local.inward.plan
            found = [traffic[k].bytes_sent if k in traffic else 0 for k in ("halo_forward", "halo_backward")]
            if epoch:  # the ids of the halo are fetched once, before
                assert found == [8 * (f + h) * plan.num_boundary, 8 * (f + h) * plan.num_halo]
                assert set(traffic) <= {"halo_forward", "halo_backward", "control"}
        policy.state()


def run(comm, path, run_dir, **options):
    config = configure(
        path,
        **{
            "run_dir": str(run_dir),
            "partition": "metis",
            "eval_every": 3,
            "checkpoint_every": 4,
            "model": "gat",
            "hidden": 4,
            "heads": 2,
            "schedule": "stale",
            "stale_epochs": 2,
            **options,
        },
    )
    assert train(config, SimpleNamespace(comm=comm, threads=1)) == 0
    comm.barrier()


@pytest.mark.smoke
@pytest.mark.usefixtures("no_pictures")
def test_what_is_on_its_way_is_saved_by_every_rank(comm, session_path, shared_path):
    """Where it does not fit, the schedule starts afresh and says so."""
    path = make_graphs(comm, session_path, nodes=300)["undirected"]
    run(comm, path, shared_path / "run", epochs=10)
    folder = checkpoints(shared_path / "run")[-1].parent
    assert [p.name for p in sorted(folder.glob("*-ranks"))] == ["epoch-000008-ranks", "epoch-000010-ranks"]
    assert len(list((folder / "epoch-000010-ranks").iterdir())) == comm.size
    summary = json.loads((shared_path / "run" / "summary.json").read_text())
    assert (summary["halo_kept_bytes"] > 0) == (comm.size > 1)
    text = (shared_path / "run" / "log.txt").read_text()
    assert ("does not fall linearly" in text) == (comm.size > 1)
    run(comm, path, shared_path / "run", epochs=12, stale_epochs=1, resume=True)
    assert "starts afresh" in (shared_path / "run" / "log.txt").read_text()
