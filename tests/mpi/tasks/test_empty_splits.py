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
    """with_val(share) -> path of a graph with so large a share of validation nodes."""
    return lambda val: generated(comm, session_path / f"split-{val}.h5", train=0.6, val=val)


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
    with pytest.raises(CheckpointError, match="no validation nodes; use --weights last"):
        evaluated(comm, shared_path / "run")
    measured = evaluated(comm, shared_path / "run", "last")
    assert measured["val"] is None and measured["epoch"] == measured["epochs_done"] == 4
    if comm.rank == 0:
        shown = capfd.readouterr().out
        assert re.search(r"val accuracy +│ –", shown) and re.search(r"of epoch 4\b", shown) and "nan" not in shown
        assert re.search(r"best validation accuracy +│ – \(the graph has no validation nodes\)", said.out)
        assert re.search(rf"test accuracy after the last epoch +│ {found[-1]['test']:.4f}", said.out)
        assert draw_curves(shared_path / "run").exists()


@pytest.mark.processes
def test_no_test_nodes(comm, with_val, shared_path, capfd):
    path = with_val(0.4)
    run(comm, path, shared_path / "run")
    said = capfd.readouterr()
    log = log_of(shared_path / "run")
    assert log.count("no test nodes") == 1 and "no validation" not in log
    assert "nan" not in said.out + log
    if comm.rank == 0:
        assert re.search(r"test accuracy there +│ –", said.out)
    run(comm, path, shared_path / "run", epochs=6, lr=0.0, resume=True)  # its checkpoint holds NaN as null
    of_all = summary(shared_path / "run")
    assert of_all["test_at_best_val"] is None and of_all["best_val"] > 0 and of_all["epochs"] == 6


def test_without_evaluation_nothing_is_missed(comm, with_val, shared_path):
    run(comm, with_val(0.0), shared_path / "run", eval_every=0)
    assert "validation nodes" not in log_of(shared_path / "run")
