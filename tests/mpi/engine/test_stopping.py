"""A run that is asked to stop: all ranks after the same epoch, with a checkpoint from which it goes on bit for bit."""

import os
import signal
import time
from types import SimpleNamespace

import pytest

from hpcgnn.app.train import train
from hpcgnn.engine.checkpoint import checkpoints
from hpcgnn.engine.stopping import EXIT_STOPPED, StopRequest
from hpcgnn.engine.trainer import Trainer

from ..training import configure, make_graphs
from .test_resume import check_same

pytestmark = [pytest.mark.ranks(2), pytest.mark.usefixtures("no_pictures")]

EPOCHS = 8


@pytest.fixture(scope="module")
def graph(comm, session_path):
    return make_graphs(comm, session_path, nodes=300)["undirected"]


def run(comm, graph, run_dir, **options):
    given = {"epochs": EPOCHS, "eval_every": 2, "checkpoint_every": 100, "partition": "metis", **options}
    code = train(configure(graph, run_dir=str(run_dir), **given), SimpleNamespace(comm=comm, threads=1))
    comm.barrier()
    return code


@pytest.mark.processes
@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGINT])
def test_the_signal_of_one_rank_stops_all(comm, graph, shared_path, monkeypatch, number):
    """The last rank alone gets it, in epoch 3; the metrics and the checkpoint end there, and nothing else is lost."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # these tests may run in the background of a shell
        signal.signal(signal.SIGINT, signal.default_int_handler)
    step = Trainer.step

    def signalled(trainer, epoch):
        if trainer.comm is comm and comm.rank == comm.size - 1 and epoch == 3:
            os.kill(os.getpid(), number)
        return step(trainer, epoch)

    run_dir = shared_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", signalled)
        assert run(comm, graph, run_dir) == EXIT_STOPPED
    assert [path.name for path in checkpoints(run_dir)] == ["epoch-000004.h5"]
    assert not (run_dir / "summary.json").exists(), "only a run that is done has a result"
    assert ("another rank was asked to" in (run_dir / "log.txt").read_text()) == (comm.size > 1)
    assert run(comm, graph, run_dir, resume=True) == 0
    assert run(comm, graph, shared_path / "whole") == 0
    check_same(run_dir, shared_path / "whole")


def test_the_end_of_the_job(comm, graph, shared_path, monkeypatch):
    """One rank's clock is ahead: it is due first, and all stop."""
    ahead = 30 * (comm.rank == comm.size - 1)
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time()) + 60 - ahead))
    assert run(comm, graph, shared_path / "late", stop_before=45.0) == EXIT_STOPPED
    assert [path.name for path in checkpoints(shared_path / "late")] == ["epoch-000001.h5"]
    assert run(comm, graph, shared_path / "early", stop_before=5.0) == 0


def test_the_last_epoch_is_the_end_anyway(comm, graph, shared_path):
    """A signal in the last epoch does not make a finished run look unfinished."""
    StopRequest.of_this_process().signalled = True
    try:
        assert run(comm, graph, shared_path / "run", epochs=1) == 0
    finally:
        StopRequest.of_this_process().signalled = False
    assert (shared_path / "run" / "summary.json").exists()
