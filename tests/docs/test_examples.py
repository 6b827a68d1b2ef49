"""The lines of Python on formats.md, results.md and traces.md of docs/ read the files of a run, also with ids and
classes that pandas may change.
"""

import json
import re
from pathlib import Path

import h5py
import numpy as np
import pytest
from core.forked import start
from pages import run

import partition_tools

from .test_paper import load as load_paper

N = 60
IDS = ["NA", "None", "null", "007", "1e1", *(f"n{k:03d}" for k in range(N - 5))]
CLASSES = ["True", "cat", "null-like"]
GIVEN = {"edge": [[0, 2], [4, 6]], "edge_neg": [[8, 3]]}
COMMANDS = """
partition_tools import e.csv --features features.csv --labels y.csv --relabel \
--undirected --train .5 --val .2 -o graph.h5
partition_tools partition add graph.h5 --ranks 1,2
hpcgnn train --graph graph.h5 --model sage --layers 2 --hidden 8 --epochs 6 --run-dir runs/first
hpcgnn predict runs/first -o predictions.csv
hpcgnn predict runs/first --probabilities -o predictions.h5
"""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the files named on the pages."""
    folder, draw = tmp_path_factory.mktemp("results"), np.random.default_rng(1)
    pairs = draw.choice(IDS, (4 * N, 2))
    (folder / "e.csv").write_text("src,dst\n" + "".join(f"{a},{b}\n" for a, b in pairs))
    rows = [f"{name},{x:.3f},{y:.3f}" for name, (x, y) in zip(IDS, draw.standard_normal((N, 2)))]
    (folder / "features.csv").write_text("id,x,y\n" + "\n".join(rows))
    (folder / "y.csv").write_text("id,label\n" + "\n".join(map(",".join, zip(IDS, draw.choice(CLASSES, N)))))
    for line in COMMANDS.strip().splitlines():
        done = start(0, "-m", *line.split(), cwd=folder)
        assert done.code == 0, done.err
    ring, links = np.stack([np.arange(9), (np.arange(9) + 1) % 9]), {"val": GIVEN, "test": GIVEN}
    partition_tools.save_graph(folder / "links.h5", ring, links=links, undirected=True, ranks=2)
    return folder


def graph_file(names):
    assert names["edges"].shape == (N, N) and names["undirected"]
    assert (names["edges"] != names["edges"].T).nnz == 0 and names["features"].shape == (N, 2)
    assert sorted(names["number_at_import"]) == list(range(N)) and set(names["labels"]) == {0, 1, 2}


def held_out_edges(names):
    order = names["row_of"].argsort()
    assert order[names["edges"]["val"]].tolist() == GIVEN["edge"]
    assert order[names["negatives"]].tolist() == GIVEN["edge_neg"] and names["edges"].keys() == {"val", "test"}


def records(names):
    assert len(names["losses"]) == 6 and all(second > 0 for second in names["seconds"])


def checkpoint(names):
    assert names["epoch"] == 6 and any(each.shape == (2, 8) for each in names["weights"].values())


def joined_table(names):
    """By words as they are written."""
    joined = names["joined"]
    assert sorted(joined["id"]) == sorted(IDS) and set(joined["class_name"]) <= set(CLASSES)
    np.testing.assert_array_equal(joined["class"], [CLASSES.index(name) for name in joined["class_name"]])


def arrays(names):
    assert names["ids"].tolist() == sorted(IDS) and names["names"].tolist() == CLASSES
    np.testing.assert_array_equal(names["classes"], names["probability"].argmax(1))


def compared_with_labels(names):
    with h5py.File("graph.h5") as file:
        original = file["nodes/original_id"][:].tolist()
        labels, split = file["nodes/labels"][:].tolist(), file["nodes/split"][:].tolist()
    with h5py.File("predictions.h5") as file:
        predicted = file["prediction"][:].tolist()
    right = [predicted[node] == label for node, label, part in zip(original, labels, split) if part == 3]
    assert names["right"].shape == (N,) and names["right"][names["test"]].sum() == sum(right)


def metrics_of_pop(names):
    """One rank has nobody to wait for."""
    found = names["pop_metrics"]("runs/first")
    assert found["load balance"] == 1 and 0.5 < found["parallel efficiency"] <= 1 and found["useful"] > 0
    (rank,) = [json.loads(line) for line in Path("runs/first/ranks.jsonl").read_text().splitlines()]
    slow = {**rank["seconds"], "forward": rank["seconds"]["forward"] + found["useful"]}
    Path("two").mkdir()
    Path("two/ranks.jsonl").write_text("".join(json.dumps(each) + "\n" for each in (rank, {**rank, "seconds": slow})))
    both = names["pop_metrics"]("two")
    assert 0.7 < both["load balance"] < 0.8 and 0.75 < both["communication efficiency"] <= 1


CHECKS = {
    ("formats.md", "topology/indptr"): graph_file,
    ("formats.md", "links/test/negatives"): held_out_edges,
    ("formats.md", "metrics.jsonl"): records,
    ("formats.md", "checkpoints"): checkpoint,
    ("results.md", "read_csv"): joined_table,
    ("results.md", '"class_names" in file'): arrays,
    ("results.md", "row_of"): compared_with_labels,
    ("traces.md", "pop_metrics"): metrics_of_pop,
}


@pytest.mark.parametrize("page, words", CHECKS)
def test_the_example_with_these_words(folder, monkeypatch, page, words):
    monkeypatch.chdir(folder)
    CHECKS[page, words](run(page, words))


def test_figures_of_a_run_for_the_performance_page(folder):
    """As jobs/bench/paper.sh gathers them."""
    (row,) = load_paper().rows_of_runs(folder)
    assert row["run"] == "runs/first" and row["ranks"] == 1
    for name in ("seconds of an epoch", "processor seconds"):
        middle, least, greatest = map(float, re.fullmatch(r"(\S+) \((\S+) to (\S+)\)", row[name]).groups())
        assert 0 < least <= middle <= greatest
