"""A run that is asked to stop: all ranks after the same epoch, with a checkpoint from which it goes on bit for bit."""

import signal
import time

import pytest

from hpcgnn.engine.stopping import EXIT_STOPPED, StopRequest

from ..runs import check_same, checkpoint_names, log_of, signalled, train_into

pytestmark = pytest.mark.ranks(2)

USUAL = {"epochs": 8, "eval_every": 2, "checkpoint_every": 100}


@pytest.mark.processes
@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGINT])
def test_the_signal_of_one_rank_stops_all(comm, graph, shared_path, number):
    """The last rank alone gets it, in epoch 3; the metrics and the checkpoint end there, and nothing else is lost."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # these tests may run in the background of a shell
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run_dir = shared_path / "run"
    with signalled(comm, 3, number):
        train_into(comm, graph, run_dir, EXIT_STOPPED, **USUAL)
    assert checkpoint_names(run_dir) == ["epoch-000004.h5"]
    assert not (run_dir / "summary.json").exists(), "only a run that is done has a result"
    assert ("another rank was asked to" in log_of(run_dir)) == (comm.size > 1)
    train_into(comm, graph, run_dir, **USUAL, resume=True)
    train_into(comm, graph, shared_path / "whole", **USUAL)
    check_same(run_dir, shared_path / "whole")


def test_the_end_of_the_job(comm, graph, shared_path, monkeypatch):
    """One rank's clock is ahead: it is due first, and all stop."""
    ahead = 30 * (comm.rank == comm.size - 1)
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time()) + 60 - ahead))
    train_into(comm, graph, shared_path / "late", EXIT_STOPPED, **USUAL, stop_before=45.0)
    assert checkpoint_names(shared_path / "late") == ["epoch-000001.h5"]
    train_into(comm, graph, shared_path / "early", **USUAL, stop_before=5.0)


def test_the_last_epoch_is_the_end_anyway(comm, graph, shared_path):
    """A signal in the last epoch does not make a finished run look unfinished."""
    StopRequest.of_this_process().signalled = True
    try:
        train_into(comm, graph, shared_path / "run", **{**USUAL, "epochs": 1})
    finally:
        StopRequest.of_this_process().signalled = False
    assert (shared_path / "run" / "summary.json").exists()
