"""The lines of Python on docs/formats.md read what the program writes."""

import functools

import numpy as np
import pytest
from core.forked import start
from pages import run

import partition_tools

N = 300
COMMANDS = f"""
partition_tools generate planted -o graph.h5 --nodes {N} --degree 6 --features 8 --classes 3 --seed 1
partition_tools partition add graph.h5 --ranks 1,2
hpcgnn train --graph graph.h5 --model sage --layers 2 --hidden 8 --epochs 6 --trace 2-3 --run-dir runs/first
hpcgnn predict runs/first --probabilities -o predictions.h5
"""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the files of which the page speaks."""
    folder = tmp_path_factory.mktemp("formats")
    for line in COMMANDS.strip().splitlines():
        done = start(0, "-m", *line.split(), cwd=folder)
        assert done.code == 0, done.err
    return folder


@pytest.fixture
def of_page(folder, monkeypatch):
    """of_page(words) -> the names that the one example of the page with these words leaves, run in the folder."""
    monkeypatch.chdir(folder)
    return functools.partial(run, "formats.md")


def test_the_graph_file(of_page):
    names = of_page("topology/indptr")
    assert names["edges"].shape == (N, N) and names["undirected"]
    assert (names["edges"] != names["edges"].T).nnz == 0 and names["features"].shape == (N, 8)
    assert sorted(names["number_at_import"]) == list(range(N)) and set(names["labels"]) == {0, 1, 2}


def test_held_out_edges(folder, of_page):
    ring, given = np.stack([np.arange(9), (np.arange(9) + 1) % 9]), {"edge": [[0, 2], [4, 6]], "edge_neg": [[8, 3]]}
    partition_tools.save_graph(folder / "links.h5", ring, links={"val": given, "test": given}, undirected=True, ranks=2)
    names = of_page("links/test/negatives")
    order = names["row_of"].argsort()
    assert order[names["edges"]["val"]].tolist() == given["edge"]
    assert order[names["negatives"]].tolist() == given["edge_neg"] and names["edges"].keys() == {"val", "test"}


def test_the_map(of_page):
    names = of_page("rank_of_cluster")
    assert np.bincount(names["rank_of_node"]).sum() == N and set(names["rank_of_node"]) == {0, 1}
    assert names["halo_rows"] > 0


def test_the_run_directory(of_page):
    names = of_page("metrics.jsonl")
    assert len(names["losses"]) == 6 and all(second > 0 for second in names["seconds"])


def test_the_checkpoint(of_page):
    names = of_page("checkpoints")
    assert names["epoch"] == 6 and any(each.shape == (8, 8) for each in names["weights"].values())


def test_the_predictions(of_page):
    names = of_page("predictions.h5")
    assert len(names["classes"]) == N and (names["probability"].argmax(1) == names["classes"]).all()


def test_the_trace(of_page):
    names = of_page("traceEvents")
    assert any(span.get("cat") == "phase" for span in names["spans"]) and names["waits"] >= 0
