"""`hpcgnn import-weights`: weights under their own names, and files that do not fit."""

import json

import h5py
import numpy as np
import pytest
import torch
from core.forked import train

from hpcgnn.__main__ import main
from hpcgnn.app.weights import ENTRY
from hpcgnn.extras.pyg.importing import metadata_of, options_of_file
from partition_tools.cli.generate_graph import generate_graph
from partition_tools.cli.partition_graph import partition_graph
from partition_tools.generators.spec import Spec

safetensors = pytest.importorskip("safetensors.torch", reason="the extra `export` is not installed")
WIDTH = 6
OPTIONS = ("--layers", 3, "--hidden", 6)
KINDS = {"sage": {}, "gcn": {"targets": 2}}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """{model: (run directory, graph, options of the model)} of short runs; gcn predicts numbers around 50."""
    folder, found = tmp_path_factory.mktemp("weights"), {}
    for model, kind in KINDS.items():
        graph, options = folder / f"{model}.h5", ("--model", model, *OPTIONS)
        generate_graph("planted", graph, Spec(60, degree=4, features=WIDTH, classes=3, seed=5, **kind))
        partition_graph(graph, [1, 2], num_clusters=8)
        if model == "gcn":
            with h5py.File(graph, "r+") as file:
                labels = file["nodes/labels"]
                labels[...] = 50 + 9 * np.random.default_rng(5).standard_normal(labels.shape)
        done = train(0, "--graph", graph, "--run-dir", folder / model, "--epochs", 5, "--lr", 0.05, *options)
        assert done.code == 0, done.err
        found[model] = folder / model, graph, options
    return found


def call(*words):
    return main([str(word) for word in words])


@pytest.fixture
def predicted(command, tmp_path):
    """predicted(run directory) -> (predictions, logits) of its last epoch."""

    def rows(run_dir):
        done = command("predict", run_dir, "--logits", "--weights", "last", "--force", "-o", tmp_path / "p.h5")
        assert done.code == 0, done.err
        with h5py.File(tmp_path / "p.h5") as file:
            return file["prediction"][:], file["logit"][:]

    return rows


def test_our_own_file_needs_no_options_and_the_run_goes_on(runs, command, predicted, tmp_path):
    run_dir, graph, _ = runs["sage"]
    assert call("export", run_dir, "-o", tmp_path / "m.safetensors", "--weights", "last") == 0
    made = tmp_path / "in"
    assert call("import-weights", tmp_path / "m.safetensors", "--graph", graph, "--run-dir", made) == 0
    assert (predicted(made)[1] == predicted(run_dir)[1]).all()
    done = command("evaluate", made)
    assert done.code == 0, done.err
    assert json.loads((made / "evaluation.json").read_text())["epoch"] == 0
    done = command("train", "--resume", "--run-dir", made, "--epochs", 2)
    assert done.code == 0 and (made / "metrics.jsonl").read_text().count("\n") == 2, done.err


def test_targets_come_with_the_scale_by_which_they_were_learned(runs, predicted, tmp_path, capsys):
    run_dir, graph, options = runs["gcn"]
    file, made = tmp_path / "m.safetensors", tmp_path / "in"
    assert call("export", run_dir, "-o", file, "--weights", "last") == 0
    about, state = metadata_of(file), safetensors.load_file(file)
    assert about["graph"]["task"] == "regression" and 40 < about["targets"]["mean"][1] < 60
    assert call("import-weights", file, "--graph", graph, "--run-dir", made) == 0
    found, expected = (predicted(each)[0] for each in (made, run_dir))
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == np.float64 and found.shape == (60, 2) and 40 < found.mean() < 60
    torch.save({name: each for name, each in state.items() if "targets" not in name}, tmp_path / "w.pt")
    words = ("import-weights", tmp_path / "w.pt", "--graph", graph, *options, "--run-dir", tmp_path / "bare")
    assert call(*words) == 2 and "expected the mean and the deviation of 2 targets" in capsys.readouterr().err
    assert call(*words, "--target-scale", "none") == 0
    assert abs(predicted(tmp_path / "bare")[0].mean()) < 5, "as the weights have them"


def test_what_does_not_fit_is_listed(runs, tmp_path, capsys):
    run_dir, graph, options = runs["sage"]
    call("export", run_dir, "-o", tmp_path / "m.safetensors")
    torch.save(torch.nn.Linear(2, 2), tmp_path / "module.pt")
    (tmp_path / "broken.safetensors").write_bytes(b"nothing")
    cases = [
        ("m.safetensors", ["--hidden", 7], "convs.0.own.weight: expected [6, 7], got [6, 6]"),
        ("m.safetensors", ["--layers", 2], "convs.2.own.weight: expected none, got [6, 3]"),
        ("m.safetensors", ["--norm", "batch"], "norms.0.weight: expected [6], got none"),
        ("module.pt", [], "module.pt cannot be read"),
        ("broken.safetensors", [], "broken.safetensors cannot be read"),
        ("absent.pt", [], "absent.pt cannot be read"),
        ("weights.bin", [], "expected a name that ends with .safetensors, .pt or .pth"),
    ]
    for file, more, words in cases:
        capsys.readouterr()
        code = call("import-weights", tmp_path / file, "--graph", graph, "--run-dir", tmp_path / "in", *options, *more)
        errors = capsys.readouterr().err.strip().splitlines()
        assert code == 2 and len(errors) == 1 and words in errors[0], errors
        assert not (tmp_path / "in").exists()


def test_a_file_of_weights_names_no_code(tmp_path):
    about = {"options": {"model": "gcn", "layers": 2, "plugin": "/theirs.py"}}
    safetensors.save_file({"w": torch.zeros(1)}, tmp_path / "w.safetensors", {ENTRY: json.dumps(about)})
    assert options_of_file(str(tmp_path / "w.safetensors")) == {"model": "gcn", "layers": 2}
