"""`hpcgnn evaluate` on every number of ranks: the metrics of training, and predictions in the order of the original
nodes.
"""

import json
import re
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from hpcgnn.app.evaluate import evaluate
from hpcgnn.app.resuming import options_of_run
from hpcgnn.app.train import train
from hpcgnn.config import make_config
from hpcgnn.errors import HpcgnnError, RunDirError
from hpcgnn.graphfile import original_order

from ..training import CHOICES, configure, make_graphs

pytestmark = pytest.mark.ranks(2)

NODES = 300


@pytest.fixture(scope="module")
def trained(comm, session_path):
    """{name: (graph, run directory)} of short runs on all ranks."""
    graphs, runs = make_graphs(comm, session_path, nodes=NODES), {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hpcgnn.engine.summary.draw_curves", lambda run_dir: None)
        for name, path in graphs.items():
            run_dir = session_path / f"evaluated-{name.replace(' ', '-')}"
            config = configure(path, run_dir=str(run_dir), epochs=6, hidden=16, lr=0.05, partition="metis")
            assert train(config, SimpleNamespace(comm=comm, threads=1)) == 0
            comm.barrier()
            runs[name] = path, run_dir
    return runs


def evaluated(comm, graph, run_dir, predictions="", weights="best", **options):
    config = make_config(options_of_run(run_dir, {"graph": str(graph), **options}), CHOICES)
    assert evaluate(config, SimpleNamespace(comm=comm, threads=1), weights, str(predictions)) == 0
    comm.barrier()
    return json.loads((run_dir / "evaluation.json").read_text())


@pytest.mark.parametrize("map_name", ["metis", "random-clusters"])
@pytest.mark.parametrize("name", ["undirected", "directed multi-label"])
def test_the_metrics_are_those_of_training(comm, trained, name, map_name):
    graph, run_dir = trained[name]
    records = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    for weights in ("best", "last"):
        found = evaluated(comm, graph, run_dir, weights=weights, partition=map_name)
        expected = records[found["epoch"] - 1]
        assert expected["epoch"] == found["epoch"]
        assert found["ranks"] == comm.size and found["partition"] == map_name
        assert [found[split] for split in ("train", "val", "test")] == pytest.approx(
            [expected[split] for split in ("train", "val", "test")], abs=0.011
        ), "to one node of a split: rounding may turn a tie"
    assert evaluated(comm, graph, run_dir, weights="last")["epoch"] == 6


@pytest.mark.parametrize("more", [{"ema": 0.5}, {"features": "file+learned:4"}], ids=["averages", "learned"])
def test_the_end_of_a_run_reports_its_best_epoch(comm, trained, shared_path, monkeypatch, more):
    """All metrics and the tables by class are those of the best epoch, with averages and learned rows of that epoch."""
    monkeypatch.setattr("hpcgnn.engine.summary.draw_curves", lambda run_dir: None)
    graph, run_dir = trained["undirected"][0], shared_path / "run"
    options = {"epochs": 12, "hidden": 8, "lr": 1.0, "partition": "metis", **more}
    assert train(configure(graph, run_dir=str(run_dir), **options), SimpleNamespace(comm=comm, threads=1)) == 0
    comm.barrier()
    summary, found = json.loads((run_dir / "summary.json").read_text()), evaluated(comm, graph, run_dir)
    assert summary["best_epoch"] < 12 and summary["metrics"]["val"]["accuracy"] == summary["best_val"]
    for name in ("metrics", "classes", "confusion"):
        assert summary[name] == found[name]
    for split, count in summary["split_nodes"].items():
        assert sum(row["support"] for row in found["classes"][split]) == np.sum(found["confusion"][split]) == count
        assert np.trace(found["confusion"][split]) / count == pytest.approx(found[split])


@pytest.mark.processes
def test_a_run_that_cannot_be_written_is_evaluated_all_the_same(comm, trained, shared_path, capfd):
    graph, run_dir = trained["undirected"]
    if comm.rank == 0:
        shutil.copytree(run_dir, shared_path / "run", ignore=shutil.ignore_patterns("evaluation.json"))
        (shared_path / "run" / "evaluation.json").mkdir()
    comm.barrier()
    with pytest.raises(HpcgnnError, match="cannot write .*evaluation.json.*; the metrics are printed above; .* copy"):
        evaluated(comm, graph, shared_path / "run")
    assert comm.rank or re.search(r"test accuracy +│ 0\.\d+", capfd.readouterr().out)


@pytest.mark.parametrize("some", [False, True])
def test_every_row_comes_to_its_place(comm, monkeypatch, some):
    """Ranks that own nothing, one node, or most of the graph; of all nodes or some, in slabs of few rows and bytes."""
    draw = np.random.default_rng(3)
    for nodes, slab_bytes in ((1, 1 << 20), (comm.size, 1 << 20), (101, 100)):
        monkeypatch.setattr(original_order, "SLAB_BYTES", slab_bytes)
        order, owner = draw.permutation(nodes), draw.integers(0, max(1, comm.size - 1), nodes)
        chosen = np.flatnonzero(draw.random(nodes) < 0.3) if some else np.arange(nodes)
        start, stop = original_order.share_of(comm.rank, nodes, comm)
        wanted = torch.from_numpy(chosen[(chosen >= start) & (chosen < stop)]) if some else None
        mine = torch.from_numpy(order[owner == comm.rank])
        rows = {"x": torch.stack([mine * 10, -mine], 1).to(torch.int32), "y": mine.unsqueeze(1) / 3}
        found = original_order.OriginalOrder(rows, mine, nodes, comm, wanted)
        assert found.num_rows == len(chosen)
        if comm.rank == 0:
            slabs = list(found.slabs())
            assert nodes < 101 or len(slabs) > 3
            if len(chosen):
                ids, x, y = (np.concatenate(e) for e in zip(*((ids, s["x"], s["y"]) for ids, s in slabs)))
                assert x.dtype == np.int32 and y.dtype == np.float32
                np.testing.assert_array_equal(ids, chosen)
                np.testing.assert_array_equal(x, np.stack([chosen * 10, -chosen], 1))
                np.testing.assert_array_equal(y[:, 0], np.float32(chosen) / np.float32(3))
        else:
            found.hand_over()
        comm.barrier()


def test_what_cannot_be_evaluated(comm, trained, shared_path):
    graph, run_dir = trained["undirected"]
    with pytest.raises(RunDirError, match="not the directory of a run"):
        options_of_run(shared_path, {})
    with pytest.raises(HpcgnnError, match="belongs to another run: graph"):
        evaluated(comm, trained["directed multi-label"][0], run_dir, metric="auto")
    with pytest.raises(HpcgnnError, match="no checkpoint yet"):
        if comm.rank == 0:
            (shared_path / "config.toml").write_bytes((run_dir / "config.toml").read_bytes())
        comm.barrier()
        evaluated(comm, graph, shared_path)
