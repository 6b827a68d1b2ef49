"""`hpcgnn export`: weights under their own names, with all facts of their model in the metadata."""

import json

import pytest

from hpcgnn.app.weights import ENTRY
from hpcgnn.graphfile.storage import GraphFile
from partition_tools.cli.generate_graph import generate_graph
from partition_tools.generators.spec import Spec

safetensors = pytest.importorskip("safetensors", reason="the extra `export` is not installed")
KINDS = [("sage", "convs.0.neighbour.weight", {}), ("gcn", "convs.0.linear.weight", {"targets": 2})]
TARGETS = {"targets.mean", "targets.deviation"}


@pytest.mark.parametrize(("model", "weight", "kind"), KINDS)
def test_weights_have_their_own_names(command, tmp_path, model, weight, kind):
    graph, run_dir, output = tmp_path / "g.h5", tmp_path / "run", tmp_path / "m.safetensors"
    generate_graph("planted", graph, Spec(60, degree=4, features=6, classes=3, seed=5, **kind))
    options = ("--model", model, "--layers", 2, "--hidden", 6, "--epochs", 5)
    done = command("train", "--graph", graph, "--run-dir", run_dir, *options)
    assert done.code == 0, done.err
    words = ("export", run_dir, "--weights", "last", "-o", output)
    assert command(*words).code == 0
    assert command(*words).code == 2, "nothing is overwritten unasked"
    with safetensors.safe_open(str(output), "pt") as file:
        about, names = json.loads(file.metadata()[ENTRY]), set(file.keys())
        assert file.get_slice(weight).get_shape() == [6, 6]
    assert about["options"]["model"] == model and about["origin"]["epoch"] == 5
    assert ("target_scale" in about["options"]) == (about["graph"]["task"] == "regression") == bool(kind)
    assert bool(kind) == bool(about["targets"]) == (names >= TARGETS)
    with GraphFile(graph) as file:
        assert about["graph"]["uuid"] == file.meta.uuid
