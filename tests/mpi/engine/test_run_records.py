"""The files of a run: the fields of summary.json and metrics.jsonl that others rely on, and their agreement."""

import numpy as np
import oracle
import pytest

from hpcgnn.config import read_toml
from hpcgnn.engine.trainer import Trainer
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.report.read import read_rank_records

from ..runs import summary, train_into
from ..training import CLASSES, FEATURES, configure

# The precision of products is the process's.
pytestmark = [pytest.mark.ranks(2), pytest.mark.processes]

EPOCHS = 5
HELD = 96 << 20


@pytest.fixture(scope="module")
def finished(comm, graph, session_path):
    """(config, run directory, records, summary) of a short run, in whose second epoch rank r takes (r + 1) × HELD
    bytes.
    """
    run_dir = session_path / "records"
    options = {"epochs": EPOCHS, "eval_every": 2, "partition": "", "intra_node": "messages"}
    step = Trainer.step

    def greedy_step(trainer, epoch):
        held = np.ones(HELD * (comm.rank + 1) if epoch == 1 else 1, np.uint8)
        loss = step(trainer, epoch)
        del held
        return loss

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "step", greedy_step)
        found = train_into(comm, graph, run_dir, **options)
    return configure(graph, run_dir=str(run_dir), **options), run_dir, found, summary(run_dir)


def test_config_gives_the_same_run_again(finished):
    """All options with their values, also the program's decisions; the directory itself is not among them."""
    config, run_dir, _, _ = finished
    given = {key: value for section in config.to_dict().values() for key, value in section.items()}
    decided = {"threads": 1, "partition": "metis", "self_loops": "add"}
    decided |= {"metric": "accuracy", "task": "classification", "loss": "cross-entropy"}
    expected = {**given, **decided}
    del expected["run_dir"], expected["resume"]
    assert read_toml(run_dir / "config.toml") == expected


def test_one_record_per_epoch_and_a_summary(comm, finished):
    _, _, records, of_all = finished
    assert [record["epoch"] for record in records] == list(range(1, EPOCHS + 1))
    judged = [record for record in records if "val" in record]
    assert [record["epoch"] for record in judged] == [2, 4, 5], "every second epoch, and the last"
    for record in records:
        assert isinstance(record["loss"], float)
        for group in ("seconds", "cpu", "bytes", "messages"):
            for value in record[group].values():
                assert value["min"] <= value["mean"] <= value["max"] <= value["sum"] + 1e-12
        assert record["cpu"].keys() == {"user_seconds", "system_seconds", "minor_faults"}
        assert record["cpu"]["user_seconds"]["sum"] + record["cpu"]["system_seconds"]["sum"] > 0
        parts = [record["seconds"][phase]["max"] for phase in ("forward", "backward", "reduction", "step")]
        assert max(parts) <= record["seconds"]["epoch"]["max"] <= sum(parts) + 1e-9, "evaluation is no part of it"
        assert ("evaluation" in record["bytes"]) == ("val" in record)
    best = max(judged, key=lambda record: record["val"])
    wanted = {"ranks": comm.size, "threads_per_rank": 1, "epochs": EPOCHS, "seed": 5, "best_epoch": best["epoch"]}
    wanted |= {"final_loss": records[-1]["loss"], "best_val": best["val"], "test_at_best_val": best["test"]}
    assert of_all == of_all | wanted and {"median", "min", "max"} <= of_all["epoch_seconds"].keys()


def test_memory(comm, finished):
    """Growth is the most that training takes above the loaded graph, in any epoch: the known size and little more.

    The heap may have shrunk since, and the kernel counts pages roughly.
    """
    _, run_dir, _, of_all = finished
    ranks = read_rank_records(run_dir, comm.size)
    for name in ("peak_rss_bytes", "training_growth_bytes", "libraries_rss_bytes"):
        values = [record[name] for record in ranks]
        mean = pytest.approx(sum(values) / comm.size)
        assert of_all[name] == {"max": max(values), "mean": mean, "min": min(values), "sum": sum(values)}
    for rank, record in enumerate(ranks):
        assert -HELD / 16 <= record["training_growth_bytes"] - HELD * (rank + 1) < HELD
        assert record["peak_rss_bytes"] >= record["baseline_rss_bytes"] + record["training_growth_bytes"]
        assert record["baseline_rss_bytes"] > HELD, "the libraries alone take more"
        assert record["peak_rss_bytes"] > record["libraries_rss_bytes"] > record["libraries_code_bytes"] > 0


def test_bytes(comm, finished):
    """Per epoch: two exchanges forwards and two backwards, of the hidden width and of the classes; once: the
    features.
    """
    of_all = finished[3]
    rows = of_all["partition"]["halo_rows_total"]
    assert rows > 0
    assert of_all["halo_bytes_per_epoch"] == rows * 4 * 2 * (16 + CLASSES)
    sent = sum(of_all["bytes_total"].get(kind, 0) for kind in ("halo_forward", "halo_backward", "input"))
    assert sent == EPOCHS * rows * 4 * 2 * (16 + CLASSES) + rows * 4 * FEATURES
    assert of_all["allreduce_bytes_per_epoch"] == (comm.size > 1) * comm.size * 4 * of_all["parameters"]


def test_partition_quality(comm, finished):
    """Counted edge by edge in the file; a node without a loop has been given one."""
    config, _, _, of_all = finished
    partition, n = of_all["partition"], 300
    with GraphFile(config.data.graph) as file:
        indptr, src = file.read("topology/indptr", dtype=np.int64), file.read("topology/indices", dtype=np.int64)
        owner = np.repeat(file.cluster_map("metis", comm.size)[0], np.diff(file.read("clusters/offsets")))
    dst = np.repeat(np.arange(n), np.diff(indptr))
    lonely = np.setdiff1d(np.arange(n), src[src == dst])
    src, dst = np.concatenate([src, lonely]), np.concatenate([dst, lonely])
    nodes, edges = (np.bincount(each, minlength=comm.size).tolist() for each in (owner, owner[dst]))
    halo = [sum(rows) for rows in oracle.halo_rows(src, dst, owner, comm.size)]
    cut = int((owner[src] != owner[dst]).sum())
    for name, values in (("nodes", nodes), ("edges", edges), ("halo_rows", halo)):
        mean = pytest.approx(sum(values) / comm.size)
        assert partition[name] == {"max": max(values), "mean": mean, "min": min(values), "sum": sum(values)}
    assert (partition["halo_rows_total"], partition["cut_edges"]) == (sum(halo), cut)
    assert partition["halo_rows_per_node"] == pytest.approx(sum(halo) / n)
    assert partition["imbalance_nodes"] == pytest.approx(max(nodes) * comm.size / n)
    assert partition["imbalance_edges"] == pytest.approx(max(edges) * comm.size / len(src))
