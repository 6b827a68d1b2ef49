"""`hpcgnn evaluate` on every number of ranks: the metrics of training, and predictions in the order of the original
nodes.
"""

import re
import shutil

import pytest

from hpcgnn.app.resuming import options_of_run
from hpcgnn.errors import HpcgnnError, RunDirError

from ..runs import evaluated, records, summary, train_into

pytestmark = pytest.mark.ranks(2)


@pytest.fixture(scope="module")
def trained(comm, paths, session_path):
    """{name: (graph, run directory)} of short runs on all ranks."""
    runs = {name: (path, session_path / f"evaluated-{name.replace(' ', '-')}") for name, path in paths.items()}
    for path, run_dir in runs.values():
        train_into(comm, path, run_dir, epochs=6, lr=0.05)
    return runs


@pytest.mark.parametrize("map_name", ["metis", "random-clusters"])
@pytest.mark.parametrize("name", ["undirected", "directed multi-label"])
def test_the_metrics_are_those_of_training(comm, trained, name, map_name):
    _, run_dir = trained[name]
    for weights in ("best", "last"):
        found = evaluated(comm, run_dir, weights, partition=map_name)
        expected = records(run_dir)[found["epoch"] - 1]
        assert expected["epoch"] == found["epoch"]
        assert found["ranks"] == comm.size and found["partition"] == map_name
        assert [found[split] for split in ("train", "val", "test")] == pytest.approx(
            [expected[split] for split in ("train", "val", "test")], abs=0.011
        ), "to one node of a split: rounding may turn a tie"
    assert evaluated(comm, run_dir, "last")["epoch"] == 6


def test_the_end_of_a_run_reports_its_best_epoch(comm, graph, shared_path):
    """All metrics and the tables by class belong to the best epoch."""
    run_dir = shared_path / "run"
    train_into(comm, graph, run_dir, epochs=12, hidden=8, lr=1.0)
    of_all, found = summary(run_dir), evaluated(comm, run_dir)
    assert of_all["best_epoch"] < 12 and of_all["metrics"]["val"]["accuracy"] == of_all["best_val"]
    for name in ("metrics", "classes"):
        assert of_all[name] == found[name]
    for split, count in of_all["split_nodes"].items():
        rows = found["classes"][split]
        assert sum(row["support"] for row in rows) == sum(row["predicted"] for row in rows) == count
        assert sum(row["recall"] * row["support"] for row in rows) / count == pytest.approx(found[split])


@pytest.mark.processes
def test_a_run_that_cannot_be_written_is_evaluated_all_the_same(comm, trained, shared_path, capfd):
    _, run_dir = trained["undirected"]
    if comm.rank == 0:
        shutil.copytree(run_dir, shared_path / "run", ignore=shutil.ignore_patterns("evaluation.json"))
        (shared_path / "run" / "evaluation.json").mkdir()
    comm.barrier()
    with pytest.raises(HpcgnnError, match="cannot write .*evaluation.json.*; the metrics are printed above; .* copy"):
        evaluated(comm, shared_path / "run")
    assert comm.rank or re.search(r"test accuracy +│ 0\.\d+", capfd.readouterr().out)


def test_what_cannot_be_evaluated(comm, trained, shared_path):
    _, run_dir = trained["undirected"]
    with pytest.raises(RunDirError, match="not the directory of a run"):
        options_of_run(shared_path, {})
    with pytest.raises(HpcgnnError, match="belongs to another run: graph"):
        evaluated(comm, run_dir, graph=trained["directed multi-label"][0], metric="auto")
    with pytest.raises(HpcgnnError, match="no checkpoint yet"):
        if comm.rank == 0:
            (shared_path / "config.toml").write_bytes((run_dir / "config.toml").read_bytes())
        comm.barrier()
        evaluated(comm, shared_path)
