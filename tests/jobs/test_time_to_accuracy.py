"""jobs/bench/accuracy/time_to_accuracy.py: its arithmetic on made-up curves, and one small run as a user starts it."""

import csv
import math
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import graphs
import pytest
from core.launching import clean_environment

ROOT = Path(__file__).parents[2]
BENCH = ROOT / "jobs" / "bench" / "accuracy" / "time_to_accuracy.py"


@pytest.fixture(scope="module")
def bench():
    """The bench as a module."""
    folders = [str(BENCH.parent), str(BENCH.parents[1])]
    sys.path += folders
    import time_to_accuracy

    yield time_to_accuracy
    for folder in folders:
        sys.path.remove(folder)


def curve(bench, *accuracies, seconds=1.0):
    """A run with an evaluation after every second epoch; processor time is twice the wall time."""
    spent = {"loss": 3.0, "seconds": seconds, "processor": 2 * seconds}
    records = [{"epoch": n, **spent} for n in range(1, 2 * len(accuracies) + 1)]
    for record, accuracy in zip(records[1::2], accuracies, strict=True):
        record |= {"val": accuracy, "test": accuracy - 0.5}
    return bench.curve_of(records)


def test_the_rate_with_which_most_seeds_are_there_first(bench):
    curves = {
        ("a", 0.1): [curve(bench, 0.5, 1.0, 0.9), curve(bench, 0.5, 0.6, 1.0)],
        ("a", 0.2): [curve(bench, 1.0, 0.1, 0.1), curve(bench, 0.5, 0.5, 0.5)],  # sooner, but one seed never
        ("a", 0.3): [curve(bench, 0.5, 1.0, 1.0, seconds=9.0), curve(bench, 0.5, 1.0, 1.0, seconds=9.0)],  # later
        ("b", 0.1): [curve(bench, 0.5, 0.6, 0.7), curve(bench, 0.8, 0.6, 0.7)],
    }
    rows = bench.rows_of(Namespace(name="g"), curves, Namespace(model="sage", targets=[50, 95]))
    assert len(rows) == 8 and {row["target"] for row in rows} == {0.5, 0.95}
    best = {(row["system"], row["share"]): row for row in bench.chosen(rows)}
    found = best["a", 95]
    names = ["rate", "reached", "epochs", "seconds", "processor_seconds", "processor_seconds_least"]
    assert [found[name] for name in names] == [0.1, 2, 5, 5.0, 10.0, 8.0] and found["best_val"] == 1.0
    assert found["test_there"] == 0.5 and best["b", 95]["reached"] == 0 and math.isnan(best["b", 95]["seconds"])
    assert best["a", 50]["epochs"] == best["b", 50]["epochs"] == 2
    assert "never" in bench.table(rows, Namespace(targets=[50, 95])).splitlines()[-1]
    # Validation of "a" at 0.2 is best after 2 epochs and not after 4, and test accuracies are half a point lower.
    first = bench.table_at(Namespace(name="g"), curves, Namespace(model="sage", at=[2, 4])).splitlines()
    cells = [cell.strip() for cell in first[3].split("|")]
    assert cells[1:-1] == ["g", "sage", "a (0.2)", "3.00", "25.0 ± 35.4", "25.0 ± 35.4"]


@pytest.mark.slow
def test_a_small_run(tmp_path):
    graph = tmp_path / "small.h5"
    graphs.planted(graph, nodes=80)
    options = ["--ours", "sar --input-dropout raw", "--peers", "--seeds", "1", "--epochs", "4", "--hidden", "8"]
    command = [sys.executable, BENCH, graph, "--rates", "0.01", "0.1", *options, "--out", tmp_path / "out"]
    done = subprocess.run(
        list(map(str, command)), env=clean_environment(), cwd=ROOT, capture_output=True, text=True, timeout=120
    )
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
