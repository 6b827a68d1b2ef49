"""Stopping and going on: bit for bit on the same ranks, within rounding on others."""

import json
import shutil
from types import SimpleNamespace

import h5py
import numpy as np
import pytest

from hpcgnn.app.train import train
from hpcgnn.comm import SoloCommunicator
from hpcgnn.engine.checkpoint import checkpoints
from hpcgnn.graphfile.attributes import read_attributes, write_attributes
from partition_tools.cli.generate_graph import generate_graph
from partition_tools.cli.partition_graph import partition_graph
from partition_tools.generators.spec import Spec

from ..training import configure, make_graphs

pytestmark = [pytest.mark.ranks(2), pytest.mark.usefixtures("no_pictures")]

EPOCHS = 12
OPTIONS = {"model": "gin", "norm": "batch", "weight_decay": 1e-3}
# A line for each schedule, and for whatever else keeps a state. The stages of `lazy` are in test_lazy_runs.py.
PAUSED = {
    "gin, batch norm, adam": OPTIONS,
    "gcn, sgd, warm-up": {"optimizer": "sgd", "lr": 0.05, "warmup_epochs": 8, "clip_norm": 1.0},
    "bns": {"schedule": "bns", "boundary_rate": 0.5},
    "stale": {"schedule": "stale", "stale_epochs": 2, "model": "gat", "hidden": 4, "heads": 2},
    "tma": {"schedule": "tma", "average_steps": 2, "correct_every": 2},
    "inductive": {"model": "sage", "layers": 2, "inductive": True, "prune": "auto"},
    "label reuse": {"model": "sage", "layers": 2, "label_reuse": 0.5},
    "averages": {"model": "sage", "layers": 2, "ema": 0.7},
    "learned features": {"features": "degree+learned:5", "layers": 2},
    "links": {"task": "links", "scorer": "mlp", "features": "degree+learned:4", "layers": 2, "link_negatives": 50},
    "regression": {"model": "sage"},
}


@pytest.fixture(scope="module")
def graph(comm, session_path):
    return make_graphs(comm, session_path, nodes=300)["undirected"]


def generated(comm, path, **options):
    """A graph file of 200 nodes. Collective."""
    if comm.rank == 0:
        generate_graph("planted", path, Spec(nodes=200, degree=6, features=4, classes=3, seed=1, **options))
        partition_graph(path, [1, 2, 3, 4], num_clusters=16)
    comm.barrier()
    return path


@pytest.fixture(scope="module")
def uninterrupted(comm, graph, session_path, no_pictures):
    """The run directory of a run of 12 epochs."""
    path = session_path / "whole"
    run(comm, graph, path, **OPTIONS)
    return path


def run(comm, graph, run_dir, **options):
    config = configure(
        graph,
        run_dir=str(run_dir),
        **{"epochs": EPOCHS, "eval_every": 2, "checkpoint_every": 4, "partition": "metis", **options},
    )
    assert train(config, SimpleNamespace(comm=comm, threads=1)) == 0
    comm.barrier()


def learned(run_dir):
    """What was learned, without what was measured: the losses and metrics of each epoch."""
    records = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    return [
        {key: record[key] for key in ("epoch", "loss", "lr", "train", "val", "test") if key in record}
        for record in records
    ]


def tensors(path):
    """{name: bytes} of all tensors of a checkpoint."""
    found = {}
    with h5py.File(path, "r") as file:
        file.visititems(
            lambda name, item: found.update({name: item[()].tobytes()}) if isinstance(item, h5py.Dataset) else None
        )
    return found


def check_same(run_dir, expected_dir):
    assert learned(run_dir) == learned(expected_dir)
    assert tensors(checkpoints(run_dir)[-1]) == tensors(checkpoints(expected_dir)[-1])
    best = [json.loads((path / "summary.json").read_text()) for path in (run_dir, expected_dir)]
    assert all(
        best[0][key] == best[1][key] for key in ("best_val", "best_epoch", "test_at_best_val", "final_loss", "epochs")
    )


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
    assert [path.name for path in checkpoints(run_dir)] == ["epoch-000008.h5"]
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
    assert "epoch-000004.h5" in (run_dir / "log.txt").read_text()


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
    expected = np.array([record["loss"] for record in learned(uninterrupted)])
    for name in ("many-then-one", "one-then-many"):
        found = np.array([record["loss"] for record in learned(shared_path / name)])
        assert (np.abs(found - expected) <= 1e-4 * np.maximum(expected, expected[0] / 10)).all()


def test_resuming_a_finished_run_repeats_nothing(comm, graph, uninterrupted, shared_path):
    run_dir = shared_path / "run"
    if comm.rank == 0:
        shutil.copytree(uninterrupted, run_dir)
    comm.barrier()
    run(comm, graph, run_dir, **OPTIONS, resume=True)
    check_same(run_dir, uninterrupted)


def count_from_zero(run_dir):
    """Make the records, the summary and the checkpoints of a run those that it would have left when epochs counted from
    0.
    """
    lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    (run_dir / "metrics.jsonl").write_text(
        "".join(json.dumps({**record, "epoch": record["epoch"] - 1}) + "\n" for record in lines)
    )
    summary = json.loads((run_dir / "summary.json").read_text())
    summary["best_epoch"] -= summary.pop("first_epoch")
    (run_dir / "summary.json").write_text(json.dumps(summary))
    for path in checkpoints(run_dir):
        with h5py.File(path, "r+", libver="latest") as file:
            progress = json.loads(read_attributes(file)["progress"])
            progress["best"]["epoch"] -= 1
            write_attributes(file, format_version=2, progress=json.dumps(progress))


@pytest.mark.parametrize("patience", [0, 4])
def test_a_run_that_counted_epochs_from_zero_goes_on(comm, graph, shared_path, patience):
    """Its directory is then all of one kind: as that of a run that has counted from 1 throughout."""
    options = {**OPTIONS, "lr": 0.2, "patience": patience, "eval_every": 1}
    run(comm, graph, shared_path / "run", **{**options, "epochs": 6})
    if comm.rank == 0:
        count_from_zero(shared_path / "run")
    comm.barrier()
    run(comm, graph, shared_path / "run", **options, resume=True)
    run(comm, graph, shared_path / "whole", **options)
    check_same(shared_path / "run", shared_path / "whole")
    summary, best = (
        json.loads((shared_path / "run" / "summary.json").read_text())[k] for k in ("epochs", "best_epoch")
    )
    found = learned(shared_path / "run")
    assert [record["epoch"] for record in found] == list(range(1, summary + 1))
    assert found[best - 1]["val"] == max(record["val"] for record in found)


def test_a_graph_without_test_nodes_goes_on(comm, shared_path):
    """The metric of an empty split is NaN, which a checkpoint holds as null; the table at the end once could not show
    it.
    """
    path = generated(comm, shared_path / "no-test-nodes.h5", train=0.6, val=0.4)
    run(comm, path, shared_path / "run", epochs=4)
    run(comm, path, shared_path / "run", epochs=6, lr=0.0, resume=True)
    summary = json.loads((shared_path / "run" / "summary.json").read_text())
    assert summary["test_at_best_val"] is None and summary["best_val"] > 0 and summary["epochs"] == 6
