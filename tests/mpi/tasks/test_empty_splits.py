"""Graphs without validation or test nodes: said once, shown as a dash, and no NaN in what is written."""

import json
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest

from hpcgnn.app.dry_run import check_training
from hpcgnn.app.evaluate import evaluate
from hpcgnn.app.resuming import options_of_run
from hpcgnn.app.train import train
from hpcgnn.config import make_config
from hpcgnn.errors import CheckpointError, ConfigError
from hpcgnn.report.curves import draw_curves
from hpcgnn.tasks.registry import TASKS
from partition_tools.cli.generate_graph import generate_graph
from partition_tools.cli.partition_graph import partition_graph
from partition_tools.generators.spec import Spec

from ..training import CHOICES, configure

pytestmark = [pytest.mark.ranks(2), pytest.mark.usefixtures("no_pictures")]


@pytest.fixture(scope="module")
def graph(comm, session_path):
    """graph(val, **more) -> path of a graph with so large a share of validation nodes."""

    def make(val, **more):
        path = session_path / f"split-{val}-{len(more)}.h5"
        if comm.rank == 0 and not path.exists():
            spec = Spec(nodes=200, degree=6, features=4, classes=3, seed=1, train=0.6, val=val, **more)
            generate_graph("planted", path, spec)
            partition_graph(path, [1, 2, 3, 4], num_clusters=16)
        comm.barrier()
        return path

    return make


def run(comm, path, run_dir, **options):
    config = configure(path, run_dir=str(run_dir), **{"epochs": 4, "partition": "metis", "log_every": 1, **options})
    assert train(config, SimpleNamespace(comm=comm, threads=1)) == 0
    comm.barrier()


@pytest.mark.processes
def test_no_validation_nodes(comm, graph, shared_path, capfd):
    run(comm, graph(0.0), shared_path / "run")
    said = capfd.readouterr()
    log = (shared_path / "run" / "log.txt").read_text()
    assert log.count("no validation nodes: no best epoch can be chosen") == 1
    assert "nan" not in said.out + said.err and "nan" not in log
    assert len(re.findall(r"epoch +\d+/\d+  loss [\d.]+  train [\d.]+  val –  test [\d.]+", log)) == 4
    summary = json.loads((shared_path / "run" / "summary.json").read_text())
    records = [json.loads(line) for line in (shared_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [record["val"] for record in records] == [None] * 4
    assert summary["best_val"] is summary["best_epoch"] is summary["test_at_best_val"] is None
    assert summary["test_at_end"] == records[-1]["test"] > 0
    nodes = summary["split_nodes"]
    assert nodes["val"] == 0 and nodes["train"] + nodes["test"] == 200
    if comm.rank == 0:
        assert re.search(r"best validation accuracy +│ – \(the graph has no validation nodes\)", said.out)
        assert re.search(rf"test accuracy after the last epoch +│ {records[-1]['test']:.4f}", said.out)
        assert draw_curves(shared_path / "run").exists()


def test_no_test_nodes(comm, graph, shared_path, capfd):
    run(comm, graph(0.4), shared_path / "run")
    said = capfd.readouterr()
    log = (shared_path / "run" / "log.txt").read_text()
    assert log.count("no test nodes") == 1 and "no validation" not in log
    assert "nan" not in said.out + log
    if comm.rank == 0:
        assert re.search(r"test accuracy there +│ –", said.out)


def test_without_evaluation_nothing_is_missed(comm, graph, shared_path):
    run(comm, graph(0.0), shared_path / "run", eval_every=0)
    assert "validation nodes" not in (shared_path / "run" / "log.txt").read_text()


def test_a_metric_that_is_not_defined_is_said_once(comm, graph, shared_path, monkeypatch):
    """There are validation nodes, but ROC-AUC needs a label that some of them have and others do not."""
    path = graph(0.2, multi_label=True)
    metrics = TASKS["multilabel"].metrics
    monkeypatch.setitem(metrics, "roc-auc", replace(metrics["roc-auc"], score=lambda *_: float("nan")))
    run(comm, path, shared_path / "run", metric="roc-auc")
    log = (shared_path / "run" / "log.txt").read_text()
    assert len(re.findall(r"the roc-auc of the \d+ val nodes is not defined: no label is there on some", log)) == 1


def test_patience_needs_validation_nodes(comm, graph, shared_path):
    """Before anything is written, on all ranks, and by --dry-run as well."""
    with pytest.raises(
        ConfigError, match="--patience 5: expected a graph with validation nodes, and .* has none"
    ) as caught:
        run(comm, graph(0.0), shared_path / "run", patience=5)
    assert caught.value.everywhere and "\n" not in str(caught.value)
    comm.barrier()
    assert not (shared_path / "run").exists()
    without, with_some = graph(0.0), graph(0.2)
    if comm.rank == 0:
        with pytest.raises(ConfigError, match="--patience 5"):
            check_training(configure(without, patience=5), [comm.size])
        check_training(configure(with_some, patience=5), [comm.size])


def test_evaluate_shows_a_dash(comm, graph, shared_path, capfd):
    path, run_dir = graph(0.0), shared_path / "run"
    run(comm, path, run_dir)
    config = make_config(options_of_run(run_dir, {"graph": str(path)}), CHOICES)
    with pytest.raises(CheckpointError, match="no validation nodes; use --weights last"):
        evaluate(config, SimpleNamespace(comm=comm, threads=1))
    capfd.readouterr()
    assert evaluate(config, SimpleNamespace(comm=comm, threads=1), "last") == 0
    comm.barrier()
    found = json.loads((run_dir / "evaluation.json").read_text())
    assert found["val"] is None and found["epoch"] == found["epochs_done"] == 4
    if comm.rank == 0:
        said = capfd.readouterr().out
        assert re.search(r"val accuracy +│ –", said) and re.search(r"of epoch 4\b", said) and "nan" not in said
