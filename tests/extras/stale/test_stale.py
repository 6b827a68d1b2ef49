"""Delayed rows against oracles that remember: values, gradients, bytes, and what is saved."""

import graphs
import numpy as np
import oracle
import pytest
import torch
from asking import aggregate, attend
from hpcgnn.schedules.stale import StaleHalo

from hpcgnn.engine.checkpoint import checkpoints
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.exchange.wire import Wire
from hpcgnn.ops.additive_attention import AttentionShape
from hpcgnn.ops.site import Facts

from ..gathering import both_ways, check_rows, sent_both_ways
from ..nn import formulas
from ..ops.test_attention import KEY, P, edge_mask
from ..runs import log_of, summary, train_into
from ..small import edges_of, stored

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
            y, gradient, traffic = both_ways(comm, local, lambda rows: aggregate(policy, rows, "sym"), x, gy)
            check_rows(comm, local, y, near @ x + far @ ahead(x))
            check_rows(comm, local, gradient, near.T @ gy + home(far.T @ gy))
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
            rows = torch.where(far, others[src, : f + h], own[src, : f + h])
            logit = torch.nn.functional.leaky_relu(own[dst, f + h :] + rows[:, f:], shape.slope)
            mask = edge_mask(src, dst, h)
            return formulas.attended(logit, rows[:, :f], torch.from_numpy(dst), n, shape.average, mask)

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
            own_y, own_gradient, traffic = both_ways(
                comm, local, lambda rows: attend(policy, rows, shape, KEY, P), inputs[epoch], gy
            )
            check_rows(comm, local, own_y, expected.detach())
            check_rows(comm, local, own_gradient, g_own + of_others[used_in(epoch, delay)])
            plan = local.inward.plan
            if epoch:  # the ids of the halo are fetched once, before
                assert sent_both_ways(traffic) == [8 * (f + h) * plan.num_boundary, 8 * (f + h) * plan.num_halo]
                assert set(traffic) <= {"halo_forward", "halo_backward", "control"}
        policy.state()


@pytest.mark.smoke
def test_what_is_on_its_way_is_saved_by_every_rank(comm, graph, shared_path):
    """Where it does not fit, the schedule starts afresh and says so."""
    usual = {"eval_every": 3, "checkpoint_every": 4, "model": "gat", "hidden": 4, "heads": 2, "schedule": "stale"}
    train_into(comm, graph, shared_path / "run", **usual, stale_epochs=2, epochs=10)
    folder = checkpoints(shared_path / "run")[-1].parent
    assert [p.name for p in sorted(folder.glob("*-ranks"))] == ["epoch-000008-ranks", "epoch-000010-ranks"]
    assert len(list((folder / "epoch-000010-ranks").iterdir())) == comm.size
    assert (summary(shared_path / "run")["halo_kept_bytes"] > 0) == (comm.size > 1)
    assert ("does not fall linearly" in log_of(shared_path / "run")) == (comm.size > 1)
    train_into(comm, graph, shared_path / "run", **usual, stale_epochs=1, epochs=12, resume=True)
    assert "starts afresh" in log_of(shared_path / "run")
