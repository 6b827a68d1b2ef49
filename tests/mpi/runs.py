"""Whole runs with a run directory: training on all ranks of a test, their checkpoints, and ways to stop them."""

import contextlib
import json
import os
import signal
from types import SimpleNamespace
from unittest import mock

import h5py
from run_files import learned, log_of, losses, records, summary  # noqa: F401

from hpcgnn.app.evaluate import evaluate
from hpcgnn.app.predict import PredictRequest, predict
from hpcgnn.app.resuming import options_of_run
from hpcgnn.app.train import train
from hpcgnn.config import make_config
from hpcgnn.engine.checkpoint import checkpoints
from hpcgnn.engine.trainer import Trainer

from .training import CHOICES, configure


def session_of(comm):
    """A stand-in for the session that the launcher makes."""
    facts = {"threads": 1, "ranks_on_node": comm.size, "node": 0, "crowding": 1.0}
    return SimpleNamespace(comm=comm, show_heartbeats=lambda folder: None, **facts)


def train_into(comm, path, run_dir, code=0, **options):
    """The records of the epochs of a run on the map `metis`, unless another one is given. code: that it ends with."""
    config = configure(path, run_dir=str(run_dir), **{"partition": "metis", **options})
    assert train(config, session_of(comm)) == code
    comm.barrier()
    found = records(run_dir)
    comm.barrier()  # a test may change the files then
    return found


def of_run(run_dir, **options):
    """The configuration of a run, with some options changed."""
    return make_config(options_of_run(run_dir, {name: str(value) for name, value in options.items()}), CHOICES)


def evaluated(comm, run_dir, weights="best", corrections=(), **options):
    """The contents of evaluation.json after all ranks have evaluated a run."""
    assert evaluate(of_run(run_dir, **options), session_of(comm), weights, corrections) == 0
    comm.barrier()
    return json.loads((run_dir / "evaluation.json").read_text())


def predicted(comm, run_dir, output, weights="last", graph=None, options=(), **asked):
    """Predict with a run, of its own graph or another one. options: the changed ones, {name: value}."""
    given = dict(options) if graph is None else {"graph": graph}
    request = PredictRequest(str(output), other_graph=graph is not None, **asked)
    assert predict(of_run(run_dir, **given), session_of(comm), weights, request) == 0
    comm.barrier()


def checkpoint_names(run_dir):
    return [path.name for path in checkpoints(run_dir)]


def tensors(path):
    """{name: bytes} of all tensors of a checkpoint."""
    found = {}
    with h5py.File(path, "r") as file:
        file.visititems(
            lambda name, item: found.update({name: item[()].tobytes()}) if isinstance(item, h5py.Dataset) else None
        )
    return found


def check_same(run_dir, expected_dir):
    """That two runs have learned the same to the last bit."""
    assert learned(run_dir) == learned(expected_dir)
    assert tensors(checkpoints(run_dir)[-1]) == tensors(checkpoints(expected_dir)[-1])
    names = ("best_val", "best_epoch", "test_at_best_val", "final_loss", "epochs")
    assert [summary(run_dir)[name] for name in names] == [summary(expected_dir)[name] for name in names]


@contextlib.contextmanager
def signalled(comm, epoch, number=signal.SIGUSR1):
    """Let the last rank alone be asked to stop, in an epoch."""
    step = Trainer.step

    def with_signal(trainer, now):
        if now == epoch and trainer.comm is comm and comm.rank == comm.size - 1:
            os.kill(os.getpid(), number)
        return step(trainer, now)

    with mock.patch.object(Trainer, "step", with_signal):
        yield
