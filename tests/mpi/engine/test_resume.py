"""Stopping and going on: bit for bit on the same ranks, within rounding on others."""

import numpy as np
import pytest

from hpcgnn.comm.communicator import SoloCommunicator
from hpcgnn.engine.checkpoint import checkpoints

from ..runs import check_same, log_of, losses, train_into
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
    options = PAUSED[name] | {"epochs": 8}
    path = generated(comm, shared_path / "targets.h5", targets=2) if name == "regression" else graph
    run(comm, path, shared_path / "whole", **options)
    run(comm, path, shared_path / "run", **{**options, "epochs": 6})
    for _ in range(2):  # a finished run repeats nothing
        run(comm, path, shared_path / "run", **options, resume=True)
        check_same(shared_path / "run", shared_path / "whole")


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
