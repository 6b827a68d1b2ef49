"""Delayed rows against oracles that remember: values, gradients, bytes, and the saved state."""

import graphs
import numpy as np
import pytest
import torch
from asking import attend
from mpi.engine import test_curves, test_not_finite, test_resume
from mpi.engine.test_nothing_stays import path  # noqa: F401
from mpi.gathering import both_ways, check_rows, sent_both_ways, whole
from mpi.graph import test_nothing_of_size_n
from mpi.nn import formulas
from mpi.ops.test_attention import KEY, P, edge_mask, random_inputs
from mpi.ops.test_operators import local as share  # noqa: F401
from mpi.runs import log_of, summary, train_into
from mpi.schedules import emulated
from mpi.small import edges_of, stored
from mpi.training import CHOICES, build_trainer, configure

from extras.estimate.test_estimated import check_case
from hpcgnn.config import make_config
from hpcgnn.engine.checkpoint import checkpoints
from hpcgnn.errors import ConfigError
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.exchange.row_codec import RowCodec
from hpcgnn.extras.stale.stale_halo import StaleHalo, build_stale
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.ops.additive_attention import AttentionShape
from hpcgnn.ops.draws import Randomness
from hpcgnn.ops.operator_context import HaloFacts
from hpcgnn.ops.operators import Messages, WeightedSum
from hpcgnn.plan.run_plan import plan
from hpcgnn.schedules.full_halo import FullHalo

pytestmark = pytest.mark.ranks(2, 3)

EPOCHS = 5


def make_policy(comm, local, delay, limit=1 << 20):
    return StaleHalo(local, comm, HaloBuffers(limit), RowCodec(), HaloFacts(local, comm), delay)


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


@pytest.mark.parametrize("shape", [AttentionShape(3, 4), AttentionShape(2, 3, average=True)], ids=str)
def test_attention(comm, session_path, shape):
    """y from own rows of this epoch and others' earlier rows; the gradient of remote rows comes from the whole earlier
    softmax.
    """
    graph, where, file = stored(comm, session_path, "random directed")
    src, dst = edges_of(graph, "add")
    n, h, f, delay = graph.num_nodes, shape.heads, shape.columns, 1
    for map_name, rows in (("dealt", 1000), ("one empty", 2)):
        local, owner = graphs.load(file, where.maps[map_name], comm, cap=rows, self_loops="add"), where.owner(map_name)
        far = torch.from_numpy(owner[src] != owner[dst])[:, None]

        def layer(own, others):
            """y by all edges; rows of remote sources come from `others`."""
            rows = torch.where(far, others[src, : f + h], own[src, : f + h])
            logit = torch.nn.functional.leaky_relu(own[dst, f + h :] + rows[:, f:], shape.slope)
            mask = edge_mask(src, dst, h)
            return formulas.attended(logit, rows[:, :f], torch.from_numpy(dst), n, shape.average, mask)

        policy = make_policy(comm, local, delay)
        inputs, of_others = [], []
        for epoch in range(EPOCHS):
            projected, gy = random_inputs(graph, shape, epoch)
            inputs.append(projected)
            own = projected.clone().requires_grad_()
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
@pytest.mark.ranks(2)
def test_what_is_on_its_way_is_saved_by_every_rank(comm, graph, shared_path):
    """Where it does not fit, the schedule starts afresh and logs this."""
    usual = {"eval_every": 3, "checkpoint_every": 4, "model": "gat", "hidden": 4, "heads": 2, "schedule": "stale"}
    train_into(comm, graph, shared_path / "run", **usual, stale_epochs=2, epochs=10)
    folder = checkpoints(shared_path / "run")[-1].parent
    assert [p.name for p in sorted(folder.glob("*-ranks"))] == ["epoch-000008-ranks", "epoch-000010-ranks"]
    assert len(list((folder / "epoch-000010-ranks").iterdir())) == comm.size
    assert (summary(shared_path / "run")["halo_kept_bytes"] > 0) == (comm.size > 1)
    assert ("does not fall linearly" in log_of(shared_path / "run")) == (comm.size > 1)
    train_into(comm, graph, shared_path / "run", **usual, stale_epochs=1, epochs=12, resume=True)
    assert "starts afresh" in log_of(shared_path / "run")


class Emulated:
    """A graph whose edges between ranks carry the rows of `delay` epochs ago."""

    def __init__(self, matrix, owner, delay):
        same = owner[:, None] == owner[None, :]
        self.whole, self.near, self.far = (torch.from_numpy(m) for m in (matrix, matrix * same, matrix * ~same))
        self._make, self._boxes = (lambda: Delayed(delay)), {}

    def box(self, *place):
        return self._boxes.setdefault(place, self._make())

    def forwards(self, place, rows):
        return self.near @ rows + self.far @ self.box(place, "ahead")(rows.detach().clone())

    def backwards(self, place, gradient):
        return self.near.T @ gradient + self.box(place, "home")(self.far.T @ gradient)


@pytest.mark.parametrize("delay", [1, 2, 3, 4, 0])
@pytest.mark.parametrize("widths", emulated.WIDTHS)
@pytest.mark.parametrize("kind", ["gcn", "sage"])
def test_losses_and_parameters(comm, session_path, kind, widths, delay):
    """PipeGCN to the letter."""
    usual = {"model": kind, "schedule": "stale", "precision": "fp64", "dropout": 0.3, "input_dropout": "none"}
    graph, where, file = stored(comm, session_path, ("random directed weighted", "random undirected")[delay % 2])
    config = configure(file, lr=emulated.LR, **usual, stale_epochs=delay, **emulated.WIDTHS[widths])
    map_name = ("random", "random", "random", "one empty", "one empty")[delay]
    trainer = build_trainer(comm, config, map_name, rows=9)
    emulation = Emulated(emulated.operator_of(graph, kind), where.owner(map_name), delay)
    emulated.check(emulation, graph, config, trainer)


def test_without_gradients_it_is_exact_and_refuses_nothing(comm, share):  # noqa: F811
    config = make_config({"graph": "g.h5", "schedule": "stale", "stale_epochs": 1}, CHOICES)
    policy = build_stale(share, comm, HaloBuffers(1 << 20), config, Randomness(2)).halo
    exact = FullHalo(share, comm, HaloBuffers(1 << 20))
    x = torch.from_numpy(np.random.default_rng(3).standard_normal((share.num_nodes, 4))[share.original_id.numpy()])
    with torch.no_grad():
        one = WeightedSum("mean", torch.float64)
        found, expected = (whole(comm, share, each.operator(one)(x)) for each in (policy, exact))
        np.testing.assert_array_equal(found, expected)
        assert policy.operator(Messages()) is not None


GAT = {"schedule": "stale", "model": "gat", "heads": 2, "hidden": 4}


@pytest.mark.ranks(2)
def test_what_every_schedule_promises(comm, graph, paths, session_path, shared_path, monkeypatch):
    """The tests of the core, with this schedule for one of theirs."""
    monkeypatch.setitem(test_resume.PAUSED, "stale", {**GAT, "stale_epochs": 2})
    test_resume.test_a_pause_changes_no_bit(comm, graph, shared_path, "stale")
    case = "directed multi-label", {"schedule": "stale", "stale_epochs": 2, "model": "gin"}, test_curves.LEAST
    monkeypatch.setitem(test_curves.WAYS, "stale", case)
    test_curves.test_ways_that_change_no_curve(comm, paths, session_path, "stale")
    test_not_finite.test_the_loss_and_the_rank_are_named(comm, graph, {"schedule": "stale"})


@pytest.mark.parametrize("options", [{"schedule": "stale", "halo_dtype": "int8", "stale_epochs": 2}, GAT], ids=str)
def test_an_estimate_counts_every_byte(comm, paths, options):
    for name in ("undirected", "directed multi-label"):
        check_case(comm, paths[name], options, "metis")


def test_what_a_plan_says_of_it(graph):
    config = configure(graph, schedule="stale", intra_node="shared")
    with GraphFile(graph) as file, pytest.raises(ConfigError, match="--intra-node messages"):
        plan(config, file.meta, 2)


@pytest.mark.slow
@pytest.mark.processes
def test_nothing_is_as_long_as_the_graph(comm, session_path, shared_path, monkeypatch):
    monkeypatch.setitem(test_nothing_of_size_n.CASES, "stale", {**GAT, "halo_dtype": "int8"})
    largest = test_nothing_of_size_n.test_no_rank_holds_anything_as_long_as_all_nodes
    largest(comm, session_path, shared_path, monkeypatch, "stale")
