"""The plugin of docs/extending.md has the same losses on any number of ranks."""

import json

import pytest
from core.forked import train
from pages import blocks, read

from partition_tools.cli.generate_graph import generate_graph
from partition_tools.cli.partition_graph import partition_graph
from partition_tools.generators.spec import Spec


@pytest.mark.slow
def test_the_plugin_of_the_page(tmp_path):
    graph, plugin, losses = tmp_path / "graph.h5", tmp_path / "edgeconv.py", []
    plugin.write_text(blocks(read("extending.md"), "python")[0])
    generate_graph("planted", graph, Spec(160, degree=6, features=6, classes=3, seed=1))
    partition_graph(graph, [1, 2], num_clusters=16)
    words = ("--graph", graph, "--plugin", plugin, "--model", "edgeconv", "--precision", "fp64", "--dropout", 0)
    for ranks in (0, 2):
        run_dir = tmp_path / str(ranks)
        done = train(ranks, *words, "--epochs", 3, "--run-dir", run_dir)
        assert done.code == 0, done.err
        rows = (run_dir / "metrics.jsonl").read_text().splitlines()
        losses.append([json.loads(row)["loss"] for row in rows])
    assert losses[1] == pytest.approx(losses[0], rel=0, abs=1e-9) and len(set(losses[0])) == 3
