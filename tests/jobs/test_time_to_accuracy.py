"""jobs/bench/accuracy/time_to_accuracy.py: one small run as a user starts it."""

import csv
import sys

import graphs
import pytest
from slurm_helpers import ROOT, call

BENCH = ROOT / "jobs" / "bench" / "accuracy" / "time_to_accuracy.py"


@pytest.mark.slow
def test_a_small_run(tmp_path):
    graph = tmp_path / "small.h5"
    graphs.planted(graph, nodes=80)
    options = ["--ours", "sar --input-dropout raw", "--peers", "--seeds", "1", "--epochs", "4", "--hidden", "8"]
    done = call([sys.executable, BENCH, graph, "--rates", "0.01", "0.1", *options, "--out", tmp_path / "out"])
    assert done.returncode == 0 and "hpcgnn sar --input-dropout raw" in done.stdout, done.stderr
    with open(tmp_path / "out" / "time_to_accuracy.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert {(row["rate"], row["share"]) for row in rows} == {
        (r, s) for r in ("0.01", "0.1") for s in ("95", "98", "99")
    }
    assert all(0 < float(row["best_val"]) <= 1 and row["seeds"] == "1" for row in rows)
    assert any(int(row["reached"]) and 0 < float(row["processor_seconds"]) < 10 for row in rows)
    assert (tmp_path / "out" / "small-sage.svg").stat().st_size > 1000
    assert len(list((tmp_path / "out" / "small").glob("*/metrics.jsonl"))) == 2
