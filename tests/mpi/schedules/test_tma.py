"""Averaging: the losses and parameters of a serial oracle, nothing of a node sent in training, resumed."""

import itertools
import json
import os
import signal
from types import SimpleNamespace

import graphs
import numpy as np
import oracle
import pytest
import torch

from hpcgnn.app.train import train
from hpcgnn.comm import SoloCommunicator
from hpcgnn.engine.checkpoint import checkpoints, read_checkpoint
from hpcgnn.engine.stopping import EXIT_STOPPED
from hpcgnn.engine.trainer import Trainer
from hpcgnn.errors import HpcgnnError
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.schedules.tma import Averaging

from ..engine.test_resume import check_same
from ..small import edges_of, stored
from ..training import build_trainer, configure, make_graphs
from .test_lazy import graph_weights, losses

pytestmark = [pytest.mark.ranks(2, 3), pytest.mark.usefixtures("no_pictures")]


@pytest.fixture(scope="module")
def graph(comm, session_path):
    return make_graphs(comm, session_path, nodes=300)["undirected"]


def run(comm, graph, run_dir, **options):
    given = {"schedule": "tma", "run_dir": str(run_dir), "lr": 0.05, **options}
    code = train(configure(graph, **given), SimpleNamespace(comm=comm, threads=1))
    comm.barrier()
    return code


def records(run_dir):
    return [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]


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
    given = {
        "model": kind,
        "precision": "fp64",
        "hidden": 4,
        "epochs": 4,
        "average_steps": 3,
        "dropout": 0.4,
        "input_dropout": "aggregate",
        **options,
    }
    assert run(comm, file, shared_path / "run", partition=map_name, **given) == 0
    start = build_trainer(
        SoloCommunicator(), configure(file, model=kind, precision="fp64", hidden=4)
    ).model.state_dict()
    src, dst = edges_of(graph, "keep")
    expected, parameters = oracle.train_by_averaging(
        oracle.adjacency(graph.num_nodes, src, dst, graph_weights(graph), {"gcn": "add", "sage": "keep"}[kind]),
        torch.from_numpy(graph.features).double(),
        torch.from_numpy(graph.labels),
        torch.from_numpy((graph.labels >= 0) & (graph.split == graphs.TRAIN)),
        where.owner(map_name),
        start,
        **{"kind": kind, "layers": 3, "rounds": 4, "every": 3, "lr": 0.05, "dropout": 0.4, "seed": 5},
        correct=options.get("correct_every", 0),
    )
    np.testing.assert_allclose(losses(records(shared_path / "run")), expected, rtol=0, atol=1e-9)
    _, state, _, _ = read_checkpoint(checkpoints(shared_path / "run")[-1])
    for parameter, value in parameters.items():
        np.testing.assert_allclose(state[parameter].numpy(), value.numpy(), rtol=0, atol=1e-8)


@pytest.mark.parametrize("options", [{"model": "gat"}, {"model": "sage", "norm": "batch"}], ids=["gat", "sage"])
def test_nothing_of_a_node_is_sent(comm, graph, shared_path, options):
    """One average a round, halo rows only where an exact step is asked for. Batch norm's buffers are averaged, too.
    Epochs are rounds, so a warm-up of all of them ends at the learning rate.
    """
    options = {"partition": "metis", "epochs": 6, "average_steps": 2, "warmup_epochs": 6, "eval_every": 0, **options}
    assert run(comm, graph, shared_path / "run", correct_every=3, **options) == 0
    parameters = json.loads((shared_path / "run" / "summary.json").read_text())["parameters"]
    found = records(shared_path / "run")
    assert [record["lr"] for record in found] == pytest.approx([0.05 * number / 6 for number in range(1, 7)])
    for record in found:
        corrected = record["epoch"] % 3 == 0
        sent = {kind: entry["sum"] for kind, entry in record["bytes"].items()}
        assert record["steps"] == 2 * comm.size
        assert corrected or not sent.keys() & {"halo_forward", "halo_backward", "input", "allreduce"}
        if comm.size > 1:
            buffers = 8 * 2 * 2 * 16 if options.get("norm") else 0
            assert sent["average"] == comm.size * (4 * parameters + buffers)
            assert not corrected or sent["halo_backward"] > 0
            assert not corrected or sent["allreduce"] == comm.size * 4 * parameters


@pytest.mark.processes
def test_stopped_and_resumed(comm, graph, shared_path, monkeypatch):
    """Each rank goes on with its own optimizer; on another number of ranks all go on with the mean."""
    step = Trainer.step
    options = {"partition": "metis", "epochs": 5, "average_steps": 4, "correct_every": 2, "model": "gat", "heads": 2}

    def signalled(trainer, epoch):
        if epoch == 2 and trainer.comm is comm and comm.rank == comm.size - 1:
            os.kill(os.getpid(), signal.SIGUSR1)
        return step(trainer, epoch)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", signalled)
        assert run(comm, graph, shared_path / "run", **options) == EXIT_STOPPED
        assert run(comm, graph, shared_path / "fewer", **options) == EXIT_STOPPED
    assert run(comm, graph, shared_path / "run", **options, resume=True) == 0
    assert run(comm, graph, shared_path / "whole", **options) == 0
    check_same(shared_path / "run", shared_path / "whole")
    if comm.rank == 0:
        assert run(SoloCommunicator(), graph, shared_path / "fewer", **{**options, "partition": ""}, resume=True) == 0
        assert ("all go on from their mean" in (shared_path / "fewer" / "log.txt").read_text()) == (comm.size > 1)
        assert len(records(shared_path / "fewer")) == 5


@pytest.mark.processes
def test_ranks_step_until_rank_0_says_that_the_time_is_up(comm, session_path, monkeypatch):
    """The clock of rank 0 goes on by a second whenever it is looked at; the others have taken four steps when it is
    started. In the second round rank 0 has nothing to train, and waits.
    """
    _, where, file = stored(comm, session_path, "random undirected")
    options = configure(file, schedule="tma", average_seconds=3.0).schedule
    averaging = Averaging(graphs.load(file, where.maps["dealt"], comm), comm, HaloBuffers(1 << 16), options)
    slept = []
    clock = SimpleNamespace(monotonic=itertools.count().__next__, sleep=slept.append)
    monkeypatch.setattr("hpcgnn.schedules.tma.time", clock)
    for trains in (True, False):
        averaging._trains = trains or comm.rank > 0
        steps = averaging._until_the_clock()
        taken = [next(steps, None) for _ in range(4)] if comm.rank else []
        comm.barrier()
        taken += list(steps)
        assert taken == list(range(len(taken))) and (len(taken) >= 4 if comm.rank else len(taken) == 3 * trains)
    assert slept == ([] if comm.rank else [0, 2])


WRONG = [
    ({}, "--schedule tma needs one of --average-steps"),
    ({"average_steps": 2, "average_seconds": 1.0}, "needs one of --average-steps"),
    ({"average_steps": 2, "correct_every": 6, "epochs": 5}, "--correct-every 6 is longer than the run"),
    ({"average_steps": 1, "assignment": "super-nodes", "partition": "metis"}, "--assignment super-nodes makes a map"),
    ({"schedule": "lazy", "average_steps": 1}, "--average-steps belongs to --schedule tma, got --schedule lazy"),
]


@pytest.mark.parametrize("options, words", WRONG, ids=[str(words) for _, words in WRONG])
def test_one_line_says_what_is_wrong(comm, graph, shared_path, options, words):
    with pytest.raises(HpcgnnError) as caught:
        run(comm, graph, shared_path / "run", **options)
    assert words in str(caught.value) and "\n" not in str(caught.value)
    assert not (shared_path / "run").exists()
