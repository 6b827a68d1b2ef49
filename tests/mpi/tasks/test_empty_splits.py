"""Graphs without validation or test nodes: reported once, shown as a dash, and no NaN in the files."""

import re

import pytest

from hpcgnn.errors import CheckpointError
from hpcgnn.report.figures import draw_curves

from ..runs import evaluated, log_of, summary, train_into
from ..training import generated

pytestmark = pytest.mark.ranks(2)


@pytest.fixture(scope="module")
def with_val(comm, session_path):
    """with_val(share, **more) -> path of a graph with so large a share of validation nodes."""
    return lambda val, **more: generated(comm, session_path / f"split-{val}-{len(more)}.h5", train=0.6, val=val, **more)


def run(comm, path, run_dir, **options):
    return train_into(comm, path, run_dir, **{"epochs": 4, **options})


@pytest.mark.processes
def test_no_validation_nodes(comm, with_val, shared_path, capfd):
    found = run(comm, with_val(0.0), shared_path / "run")
    said = capfd.readouterr()
    log = log_of(shared_path / "run")
    assert log.count("no validation nodes: no best epoch can be chosen") == 1
    assert "nan" not in said.out + said.err and "nan" not in log
    lines = re.findall(r"epoch +\d+/\d+  .*", log)  # the first and the last always come
    assert len(lines) >= 2 and all(
        re.match(r"epoch +\d+/\d+  loss [\d.]+  train [\d.]+  val –  test [\d.]+", one) for one in lines
    )
    of_all = summary(shared_path / "run")
    assert [record["val"] for record in found] == [None] * 4
    assert of_all["best_val"] is of_all["best_epoch"] is of_all["test_at_best_val"] is None
    assert of_all["test_at_end"] == found[-1]["test"] > 0
    nodes = of_all["split_nodes"]
    assert nodes["val"] == 0 and nodes["train"] + nodes["test"] == 200
    if comm.rank == 0:
        assert re.search(r"best validation accuracy +│ – \(the graph has no validation nodes\)", said.out)
        assert re.search(rf"test accuracy after the last epoch +│ {found[-1]['test']:.4f}", said.out)
        assert draw_curves(shared_path / "run").exists()


@pytest.mark.processes
def test_no_test_nodes(comm, with_val, shared_path, capfd):
    run(comm, with_val(0.4), shared_path / "run")
    said = capfd.readouterr()
    log = log_of(shared_path / "run")
    assert log.count("no test nodes") == 1 and "no validation" not in log
    assert "nan" not in said.out + log
    if comm.rank == 0:
        assert re.search(r"test accuracy there +│ –", said.out)


def test_without_evaluation_nothing_is_missed(comm, with_val, shared_path):
    run(comm, with_val(0.0), shared_path / "run", eval_every=0)
    assert "validation nodes" not in log_of(shared_path / "run")


def test_evaluate_shows_a_dash(comm, with_val, shared_path, capfd):
    path, run_dir = with_val(0.0), shared_path / "run"
    run(comm, path, run_dir)
    with pytest.raises(CheckpointError, match="no validation nodes; use --weights last"):
        evaluated(comm, run_dir)
    capfd.readouterr()
    found = evaluated(comm, run_dir, "last")
    assert found["val"] is None and found["epoch"] == found["epochs_done"] == 4
    if comm.rank == 0:
        said = capfd.readouterr().out
        assert re.search(r"val accuracy +│ –", said) and re.search(r"of epoch 4\b", said) and "nan" not in said
