"""The lines of Python on docs/results.md read predictions back, also of ids and classes that pandas may change."""

import functools
import json
import re
from pathlib import Path

import h5py
import numpy as np
import pytest
from core.forked import start
from pages import run

from .test_paper import load as load_paper

N = 60
IDS = ["NA", "None", "null", "007", "1e1", *(f"n{k:03d}" for k in range(N - 5))]
CLASSES = ["True", "cat", "null-like"]
COMMANDS = """
partition_tools import edges.csv --features features.csv --labels labels.csv --relabel --train 0.5 --val 0.2 -o graph.h5
partition_tools partition add graph.h5 --ranks 1,2
hpcgnn train --graph graph.h5 --model sage --layers 2 --hidden 8 --epochs 6 --run-dir runs/first
hpcgnn predict runs/first -o predictions.csv
hpcgnn predict runs/first --probabilities -o predictions.h5
"""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder, draw = tmp_path_factory.mktemp("results"), np.random.default_rng(1)
    pairs = draw.choice(IDS, (4 * N, 2))
    (folder / "edges.csv").write_text("src,dst\n" + "".join(f"{a},{b}\n" for a, b in pairs))
    rows = [f"{name},{x:.3f},{y:.3f}" for name, (x, y) in zip(IDS, draw.standard_normal((N, 2)))]
    (folder / "features.csv").write_text("id,x,y\n" + "\n".join(rows))
    (folder / "labels.csv").write_text("id,label\n" + "\n".join(map(",".join, zip(IDS, draw.choice(CLASSES, N)))))
    for line in COMMANDS.strip().splitlines():
        done = start(0, "-m", *line.split(), cwd=folder)
        assert done.code == 0, done.err
    return folder


@pytest.fixture
def of_page(folder, monkeypatch):
    """of_page(words) -> the names that the one example of the page with these words leaves, run in the folder."""
    monkeypatch.chdir(folder)
    return functools.partial(run, "results.md")


def test_a_table_is_joined_by_words_as_they_are_written(of_page):
    joined = of_page("read_csv")["joined"]
    assert sorted(joined["id"]) == sorted(IDS) and set(joined["class_name"]) <= set(CLASSES)
    np.testing.assert_array_equal(joined["class"], [CLASSES.index(name) for name in joined["class_name"]])


def test_the_arrays(of_page):
    names = of_page('"class_names" in file')
    assert names["ids"].tolist() == sorted(IDS) and names["names"].tolist() == CLASSES
    np.testing.assert_array_equal(names["classes"], names["probability"].argmax(1))


def test_predictions_are_compared_with_labels(folder, of_page):
    names = of_page("row_of")
    with h5py.File(folder / "graph.h5") as file:
        original = file["nodes/original_id"][:].tolist()
        labels, split = file["nodes/labels"][:].tolist(), file["nodes/split"][:].tolist()
    with h5py.File(folder / "predictions.h5") as file:
        predicted = file["prediction"][:].tolist()
    right = [predicted[node] == label for node, label, part in zip(original, labels, split) if part == 3]
    assert names["right"].shape == (N,) and names["right"][names["test"]].sum() == sum(right)


def test_figures_of_a_run_for_the_performance_page(folder):
    """As jobs/bench/paper.sh gathers them."""
    (row,) = load_paper().rows_of_runs(folder)
    assert row["run"] == "runs/first" and row["ranks"] == 1
    for name in ("seconds of an epoch", "processor seconds"):
        middle, least, greatest = map(float, re.fullmatch(r"(\S+) \((\S+) to (\S+)\)", row[name]).groups())
        assert 0 < least <= middle <= greatest


def test_metrics_of_pop(folder, monkeypatch):
    """One rank has nobody to wait for: a page's example finds it in the records of the run."""
    monkeypatch.chdir(folder)
    names = run("measuring.md", "pop_metrics")
    found = names["pop_metrics"]("runs/first")
    assert found["load balance"] == 1 and 0.5 < found["parallel efficiency"] <= 1 and found["useful"] > 0
    (rank,) = [json.loads(line) for line in Path("runs/first/ranks.jsonl").read_text().splitlines()]
    slow = {**rank["seconds"], "forward": rank["seconds"]["forward"] + found["useful"]}
    Path("two").mkdir()
    Path("two/ranks.jsonl").write_text("".join(json.dumps(each) + "\n" for each in (rank, {**rank, "seconds": slow})))
    both = names["pop_metrics"]("two")
    assert 0.7 < both["load balance"] < 0.8 and 0.75 < both["communication efficiency"] <= 1
