"""Averaging: the losses and parameters of a serial oracle, nothing of a node sent in training, resumed."""

import itertools
from types import SimpleNamespace

import graphs
import numpy as np
import oracle
import pytest

from hpcgnn.comm.communicator import SoloCommunicator
from hpcgnn.engine.checkpoint import Checkpoint, checkpoints
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.schedules.tma import Averaging

from ..runs import log_of, summary, train_into
from ..small import dense, stored
from ..training import build_trainer, configure

pytestmark = pytest.mark.ranks(2, 3)


def run(comm, graph, run_dir, **options):
    return train_into(comm, graph, run_dir, **{"schedule": "tma", "lr": 0.05, **options})


# model, graph, map, options; ranks without nodes and without training nodes among them
CASES = [
    ("gcn", "random undirected", "dealt", {}),
    ("sage", "random directed weighted", "one empty", {}),
    ("gcn", "random undirected", "all on last", {"correct_every": 1}),
    ("sage", "random undirected", "blocks", {"correct_every": 2}),
    ("gcn", "random directed weighted", "dealt", {"correct_every": 3}),
]


@pytest.mark.smoke
@pytest.mark.parametrize("kind, name, map_name, options", CASES, ids=[str(i) for i in range(len(CASES))])
def test_the_losses_of_the_oracle(comm, session_path, shared_path, kind, name, map_name, options):
    graph, where, file = stored(comm, session_path, name)
    given = {"model": kind, "precision": "fp64", "hidden": 4, "dropout": 0.4, "input_dropout": "aggregate"}
    found = run(comm, file, shared_path / "run", partition=map_name, epochs=4, average_steps=3, **given, **options)
    start = build_trainer(SoloCommunicator(), configure(file, **given)).model.state_dict()
    expected, parameters = oracle.train_by_averaging(
        *dense(graph, kind),
        where.owner(map_name),
        start,
        **{"kind": kind, "layers": 3, "rounds": 4, "every": 3, "lr": 0.05, "dropout": 0.4, "seed": 5},
        correct=options.get("correct_every", 0),
    )
    np.testing.assert_allclose([record["loss"] for record in found], expected, rtol=0, atol=1e-9)
    state = Checkpoint(checkpoints(shared_path / "run")[-1]).model
    for parameter, value in parameters.items():
        np.testing.assert_allclose(state[parameter].numpy(), value.numpy(), rtol=0, atol=1e-8)


@pytest.mark.parametrize("options", [{"model": "gat"}, {"model": "sage", "norm": "batch"}], ids=["gat", "sage"])
def test_nothing_of_a_node_is_sent(comm, graph, shared_path, options):
    """One average a round, halo rows only where an exact step is asked for. Batch norm's buffers are averaged, too.
    Epochs are rounds, and a linear rate falls with them.
    """
    options = {"partition": "metis", "epochs": 6, "average_steps": 2, "eval_every": 0, **options}
    found = run(comm, graph, shared_path / "run", correct_every=3, lr_schedule="linear", **options)
    parameters = summary(shared_path / "run")["parameters"]
    assert [record["lr"] for record in found] == pytest.approx([0.05 * number / 6 for number in range(6, 0, -1)])
    for record in found:
        corrected = record["epoch"] % 3 == 0
        sent = {kind: entry["sum"] for kind, entry in record["bytes"].items()}
        assert record["steps"] == 2 * comm.size
        assert corrected or not sent.keys() & {"halo_forward", "halo_backward", "input", "allreduce"}
        buffers = 8 * 2 * 2 * 16 if options.get("norm") else 0
        assert sent["average"] == comm.size * (4 * parameters + buffers)
        assert not corrected or sent["halo_backward"] > 0
        assert not corrected or sent["allreduce"] == comm.size * 4 * parameters


def test_on_another_number_of_ranks_all_go_on_with_the_mean(comm, graph, shared_path):
    options = {"average_steps": 4, "correct_every": 2, "model": "gat", "heads": 2}
    run(comm, graph, shared_path / "run", epochs=3, **options)
    if comm.rank == 0:
        assert len(run(SoloCommunicator(), graph, shared_path / "run", epochs=5, **options, resume=True)) == 5
        assert "all go on from their mean" in log_of(shared_path / "run")


def test_a_round_lasts_for_its_seconds(comm, session_path, monkeypatch):
    """The clock goes on by a second whenever it is looked at. A rank without nodes to train takes no step."""
    _, where, file = stored(comm, session_path, "random undirected")
    options = configure(file, schedule="tma", average_seconds=3.0).schedule
    averaging = Averaging(graphs.load(file, where.maps["dealt"], comm), comm, HaloBuffers(1 << 16), options)
    monkeypatch.setattr("hpcgnn.schedules.tma.time", SimpleNamespace(monotonic=itertools.count().__next__))
    for trains in (True, False):
        averaging._trains = trains
        assert len(list(averaging._until_the_clock())) == 3 * trains
