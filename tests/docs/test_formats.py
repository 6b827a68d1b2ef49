"""The lines of Python on docs/formats.md read the files of the program."""

import numpy as np
import pytest
from core.forked import start
from pages import run

import partition_tools

N = 300
GIVEN = {"edge": [[0, 2], [4, 6]], "edge_neg": [[8, 3]]}
COMMANDS = f"""
partition_tools generate planted -o graph.h5 --nodes {N} --degree 6 --features 8 --classes 3 --seed 1
partition_tools partition add graph.h5 --ranks 1,2
hpcgnn train --graph graph.h5 --model sage --layers 2 --hidden 8 --epochs 6 --trace 2-3 --run-dir runs/first
hpcgnn predict runs/first --probabilities -o predictions.h5
"""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the files named on the page."""
    folder = tmp_path_factory.mktemp("formats")
    for line in COMMANDS.strip().splitlines():
        done = start(0, "-m", *line.split(), cwd=folder)
        assert done.code == 0, done.err
    ring, links = np.stack([np.arange(9), (np.arange(9) + 1) % 9]), {"val": GIVEN, "test": GIVEN}
    partition_tools.save_graph(folder / "links.h5", ring, links=links, undirected=True, ranks=2)
    return folder


def graph_file(names):
    assert names["edges"].shape == (N, N) and names["undirected"]
    assert (names["edges"] != names["edges"].T).nnz == 0 and names["features"].shape == (N, 8)
    assert sorted(names["number_at_import"]) == list(range(N)) and set(names["labels"]) == {0, 1, 2}


def held_out_edges(names):
    order = names["row_of"].argsort()
    assert order[names["edges"]["val"]].tolist() == GIVEN["edge"]
    assert order[names["negatives"]].tolist() == GIVEN["edge_neg"] and names["edges"].keys() == {"val", "test"}


def clusters_to_ranks(names):
    assert np.bincount(names["rank_of_node"]).sum() == N and set(names["rank_of_node"]) == {0, 1}
    assert names["halo_rows"] > 0


def records(names):
    assert len(names["losses"]) == 6 and all(second > 0 for second in names["seconds"])


def checkpoint(names):
    assert names["epoch"] == 6 and any(each.shape == (8, 8) for each in names["weights"].values())


def predictions(names):
    assert len(names["classes"]) == N and (names["probability"].argmax(1) == names["classes"]).all()


def trace(names):
    assert any(span.get("cat") == "phase" for span in names["spans"]) and names["waits"] >= 0


CHECKS = {
    "topology/indptr": graph_file,
    "links/test/negatives": held_out_edges,
    "rank_of_cluster": clusters_to_ranks,
    "metrics.jsonl": records,
    "checkpoints": checkpoint,
    "predictions.h5": predictions,
    "traceEvents": trace,
}


@pytest.mark.parametrize("words", CHECKS)
def test_the_example_with_these_words(folder, monkeypatch, words):
    monkeypatch.chdir(folder)
    CHECKS[words](run("formats.md", words))
