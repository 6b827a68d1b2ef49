"""The table on the screen has the values of summary.json, in the units that it names."""

import math
import re
from types import SimpleNamespace

from hpcgnn.engine import summary

MIB = 2**20
RESULT = {
    "model": "gcn",
    "parameters": 12345,
    "ranks": 4,
    "threads_per_rank": 2,
    "epochs": 7,
    "final_loss": 0.123456,
    "metric": "accuracy",
    "best_val": 0.81234,
    "best_epoch": 3,
    "test_at_best_val": 0.79876,
    "test_at_end": 0.75432,
    "split_nodes": {"train": 10, "val": 0, "test": 5},
    "config": {"run": {"eval_every": 1}, "schedule": {"intra_node": "shared"}},
    "epoch_seconds": {"median": 0.5, "min": 0.25, "max": 1.75},
    "training_growth_bytes": {"max": 30 * MIB, "mean": 20.5 * MIB, "sum": 82 * MIB},
    "peak_rss_bytes": {"max": 400 * MIB, "mean": 300 * MIB, "sum": 1200 * MIB},
    "libraries_rss_bytes": {"max": 260 * MIB, "mean": 250 * MIB, "sum": 1000 * MIB},
    "libraries_code_bytes": {"max": 108 * MIB, "mean": 107 * MIB, "sum": 428 * MIB},
    "partition": {"halo_rows_total": 54321},
    "halo_bytes_per_epoch": 3 * MIB // 2,
    "allreduce_bytes_per_epoch": MIB // 4,
}


def shown(result, picture, capsys, monkeypatch):
    """(the table as {name: value}, the last line)."""
    monkeypatch.setattr(summary, "draw_curves", lambda path: picture)
    summary.show_result(result, SimpleNamespace(path="runs/x"))
    *table, last = capsys.readouterr().out.splitlines()
    rows = [re.split(r"\s*│\s*", line.strip("│ ")) for line in table if line.startswith("│")]
    assert all(len(row) == 2 for row in rows)
    return dict(rows), last


def test_every_row(capsys, monkeypatch):
    rows, last = shown(RESULT, SimpleNamespace(name="curves.png"), capsys, monkeypatch)
    assert rows.pop("best validation accuracy") == "0.8123 (epoch 3)"
    assert rows == {
        "model": "gcn, 12,345 parameters",
        "ranks × threads": "4 × 2",
        "epochs": "7",
        "final loss": "0.1235",
        "test accuracy there": "0.7988",
        "seconds per epoch": "0.5000 (0.2500 to 1.7500)",
        "memory of training per rank": "30.0 MiB at most, 20.5 MiB in the mean",
        "peak resident memory": "400 MiB at most, 1200 MiB over all ranks",
        "libraries in it, per rank": "250 MiB; 107 MiB of them are shared by the ranks of a node",
        "halo": "54,321 rows in the map, of one node in shared memory",
        "sent per epoch, all ranks": "1.5 MiB of rows, 0.25 MiB of gradients",
    }
    assert "runs/x/" in last and all(name in last for name in ("summary.json", "metrics.jsonl", "curves.png"))


def test_the_table_by_class_is_of_nodes_that_there_are(capsys):
    def rows(count, support):
        return [
            {"class": k, "support": support, "predicted": 3, "precision": 0.25, "f1": math.nan} for k in range(count)
        ]

    summary.show_classes({"classes": {"test": rows(2, 0), "val": rows(2, 5)}})
    title, _, heads, _, first, *_ = capsys.readouterr().out.splitlines()
    assert title == "val nodes by class" and heads.split() == "│ class │ support │ predicted │ precision │ f1 │".split()
    assert first.split() == "│ 0 │ 5 │ 3 │ 0.2500 │ – │".split()
    for none in ({}, {"classes": {"test": rows(21, 5)}}, {"classes": {"test": rows(2, 0)}}):
        summary.show_classes(none)
    assert not capsys.readouterr().out
