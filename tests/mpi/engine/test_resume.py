"""Stopping and going on: bit for bit on the same ranks, within rounding on others."""

import shutil

import numpy as np
import pytest

from hpcgnn.comm import SoloCommunicator
from hpcgnn.engine.checkpoint import checkpoints

from ..runs import check_same, checkpoint_names, log_of, losses, summary, train_into
from ..training import generated

pytestmark = pytest.mark.ranks(2)

EPOCHS = 12
OPTIONS = {"model": "gin", "norm": "batch", "weight_decay": 1e-3}
# A line for each schedule, and for whatever else keeps a state. The stages of `lazy` are in test_lazy_runs.py.
PAUSED = {
    "gin, batch norm, adam": OPTIONS,
    "gcn, sgd": {"optimizer": "sgd", "lr": 0.05, "clip_norm": 1.0},
    "bns": {"schedule": "bns", "boundary_rate": 0.5},
    "tma": {"schedule": "tma", "average_steps": 2, "correct_every": 2},
    "inductive": {"model": "sage", "layers": 2, "inductive": True, "prune": "auto"},
    "regression": {"model": "sage"},
}


@pytest.fixture(scope="module")
def uninterrupted(comm, graph, session_path):
    """The run directory of a run of 12 epochs."""
    path = session_path / "whole"
    run(comm, graph, path, **OPTIONS)
    return path


def run(comm, graph, run_dir, **options):
    train_into(comm, graph, run_dir, **{"epochs": EPOCHS, "eval_every": 2, "checkpoint_every": 4, **options})


@pytest.mark.smoke
@pytest.mark.parametrize("name", PAUSED)
def test_a_pause_changes_no_bit(comm, graph, shared_path, name):
    options = PAUSED[name]
    path = generated(comm, shared_path / "targets.h5", targets=2) if name == "regression" else graph
    run(comm, path, shared_path / "whole", **options)
    run(comm, path, shared_path / "run", **{**options, "epochs": 6})
    run(comm, path, shared_path / "run", **options, resume=True)
    check_same(shared_path / "run", shared_path / "whole")


def test_a_crash_after_the_checkpoint_changes_no_bit(comm, graph, uninterrupted, shared_path):
    """metrics.jsonl is ahead of the last checkpoint when a job is killed; it is cut back and the epochs are done
    again.
    """
    run_dir = shared_path / "run"
    run(comm, graph, run_dir, **{**OPTIONS, "epochs": 10})
    if comm.rank == 0:
        checkpoints(run_dir)[-1].unlink()
        with open(run_dir / "metrics.jsonl", "a") as file:
            file.write('{"epoch": 11, "lo')
    comm.barrier()
    assert checkpoint_names(run_dir) == ["epoch-000008.h5"]
    run(comm, graph, run_dir, **OPTIONS, resume=True)
    check_same(run_dir, uninterrupted)


@pytest.mark.processes
def test_a_damaged_checkpoint_costs_one_interval(comm, graph, uninterrupted, shared_path):
    run_dir = shared_path / "run"
    run(comm, graph, run_dir, **{**OPTIONS, "epochs": 8})
    if comm.rank == 0:
        newest = checkpoints(run_dir)[-1]
        newest.write_bytes(newest.read_bytes()[:-100])
    comm.barrier()
    run(comm, graph, run_dir, **OPTIONS, resume=True)
    check_same(run_dir, uninterrupted)
    assert "epoch-000004.h5" in log_of(run_dir)


def test_another_number_of_ranks_goes_on_within_rounding(comm, graph, uninterrupted, shared_path):
    """Rank 0 goes on alone where all ranks stopped, and, the other way round, all go on where one stopped."""
    alone = SoloCommunicator()
    run_dir = shared_path / "many-then-one"
    run(comm, graph, run_dir, **{**OPTIONS, "epochs": 6})
    if comm.rank == 0:
        run(alone, graph, run_dir, **OPTIONS, resume=True)
        run(alone, graph, shared_path / "one-then-many", **{**OPTIONS, "epochs": 6})
    comm.barrier()
    run(comm, graph, shared_path / "one-then-many", **OPTIONS, resume=True)
    expected = np.array(losses(uninterrupted))
    for name in ("many-then-one", "one-then-many"):
        found = np.array(losses(shared_path / name))
        assert (np.abs(found - expected) <= 1e-4 * np.maximum(expected, expected[0] / 10)).all()


def test_resuming_a_finished_run_repeats_nothing(comm, graph, uninterrupted, shared_path):
    run_dir = shared_path / "run"
    if comm.rank == 0:
        shutil.copytree(uninterrupted, run_dir)
    comm.barrier()
    run(comm, graph, run_dir, **OPTIONS, resume=True)
    check_same(run_dir, uninterrupted)


def test_a_graph_without_test_nodes_goes_on(comm, shared_path):
    """The metric of an empty split is NaN, which a checkpoint holds as null; the table at the end once could not show
    it.
    """
    path = generated(comm, shared_path / "no-test-nodes.h5", train=0.6, val=0.4)
    run(comm, path, shared_path / "run", epochs=4)
    run(comm, path, shared_path / "run", epochs=6, lr=0.0, resume=True)
    of_all = summary(shared_path / "run")
    assert of_all["test_at_best_val"] is None and of_all["best_val"] > 0 and of_all["epochs"] == 6
