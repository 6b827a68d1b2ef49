"""`hpcgnn export` and `import-weights`: our own files, PyG's layers with the same weights, DGL's, and the ways back."""

import json
from dataclasses import replace

import h5py
import numpy as np
import pytest
import torch
from core.forked import train
from pages import read

from hpcgnn.__main__ import main
from hpcgnn.app.weights import ENTRY, LIBRARIES
from hpcgnn.config import make_config
from hpcgnn.extras.pyg.importing import metadata_of, options_of_file
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.nn.spec import ModelSpec
from hpcgnn.options import ModelConfig
from hpcgnn.plan.choices import registry_choices
from partition_tools.canonical.canonical import ImportOptions
from partition_tools.cli.import_graph import import_graph
from partition_tools.cli.partition_graph import partition_graph

safetensors = pytest.importorskip("safetensors.torch", reason="the extra `export` is not installed")
NODES, WIDTH, CLASSES = 60, 6, 3
MODELS = {
    "gcn": {"norm": "batch"},
    "gcn weighted": {"graph": "weighted", "norm": "layer"},
    "sgc": {},
    "sage": {"norm": "batch", "residual": True},
    "gin": {"graph": "directed", "norm": "batch"},
    "gat": {"heads": 2, "out_heads": 3, "norm": "batch", "graph": "directed"},
    "gatv2": {"heads": 2, "out_heads": 1, "norm": "layer", "residual": True},
    "transformer": {"heads": 3, "out_heads": 2, "norm": "batch"},
    "rgcn": {"graph": "typed", "bases": 2, "norm": "batch"},
}
#: Of our own files alone; `gcn targets` predicts numbers around 50.
OTHERS = {"sage plain": {}, "gcn targets": {"graph": "targets"}}


def written(folder, name):
    """The file of a graph with self loops and nodes without edges, each node with one loop at most, as PyG has it."""
    draw = np.random.default_rng(5)
    ends = draw.integers(0, NODES - 8, (2, 240))
    ends = np.unique(ends[:, ends[0] != ends[1]], axis=1)
    loops = np.arange(0, NODES, 5)
    edges = ends if name in ("directed", "typed") else np.unique(np.concatenate([ends, ends[::-1]], 1), axis=1)
    edges = np.concatenate([edges, [loops, loops]], 1)
    arrays = {"edge_index": edges, "x": draw.standard_normal((NODES, WIDTH)).astype(np.float32)}
    real = name == "targets"
    arrays["y"] = 50 + 9 * draw.standard_normal((NODES, 2)) if real else draw.integers(0, CLASSES, NODES)
    if name == "weighted":
        arrays["edge_weight"] = (1 + (edges[0] + edges[1]) % 4).astype(np.float32)
    if name == "typed":
        arrays["edge_type"], arrays["node_type"] = edges.sum(0) % 3, np.arange(NODES) % 2
    for number, part in enumerate(("train_mask", "val_mask", "test_mask")):
        arrays[part] = np.arange(NODES) % 3 == number
    np.savez(folder / f"{name}.npz", **arrays)
    options = ImportOptions(task="regression" if real else "auto")
    import_graph(folder / f"{name}.npz", folder / f"{name}.h5", options=options)
    partition_graph(folder / f"{name}.h5", [1, 2], num_clusters=8)
    return folder / f"{name}.h5"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """run(name) -> (run directory, graph, options of the model) of a short run, made once."""
    folder, made = tmp_path_factory.mktemp("weights"), {}

    def run(name):
        if name not in made:
            options = {"model": name.split()[0], "layers": 3, "hidden": 6, "graph": "plain", **(MODELS | OTHERS)[name]}
            graph, run_dir = options.pop("graph"), folder / f"run-{name.replace(' ', '-')}"
            graph = folder / f"{graph}.h5" if (folder / f"{graph}.h5").exists() else written(folder, graph)
            words = [word for key, value in options.items() for word in given(key, value)]
            done = train(0, "--graph", graph, "--run-dir", run_dir, "--epochs", 5, "--lr", 0.05, *words)
            assert done.code == 0, done.err
            made[name] = run_dir, graph, words
        return made[name]

    return run


def given(key, value):
    flag = "--" + key.replace("_", "-")
    return [flag] if value is True else [flag, value]


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
    run_dir, graph, _ = runs("sage plain")
    assert call("export", run_dir, "-o", tmp_path / "m.safetensors", "--weights", "last") == 0
    made = tmp_path / "in"
    assert call("import-weights", tmp_path / "m.safetensors", "--graph", graph, "--run-dir", made) == 0
    assert (predicted(made)[1] == predicted(run_dir)[1]).all()
    done = command("evaluate", made)
    assert done.code == 0, done.err
    assert json.loads((made / "evaluation.json").read_text())["epoch"] == 0
    done = command("train", "--resume", "--run-dir", made, "--epochs", 2)
    assert done.code == 0 and (made / "metrics.jsonl").read_text().count("\n") == 2, done.err


@pytest.mark.parametrize("to", [[], ["--to", "pyg"]], ids=["own", "pyg"])
def test_targets_come_with_the_scale_by_which_they_were_learned(runs, predicted, tmp_path, capsys, to):
    """In the metadata of a file for PyG, whose layers do not know them."""
    run_dir, graph, options = runs("gcn targets")
    file, made = tmp_path / "m.safetensors", tmp_path / "in"
    assert call("export", run_dir, "-o", file, *to, "--weights", "last") == 0
    about, state = metadata_of(file), safetensors.load_file(file)
    assert about["graph"]["task"] == "regression" and 40 < about["targets"]["mean"][1] < 60
    assert ("targets.mean" in state) == (not to)
    assert call("import-weights", file, "--graph", graph, "--run-dir", made) == 0
    (found, logits), expected = predicted(made), predicted(run_dir)
    np.testing.assert_array_equal(found, expected[0])
    np.testing.assert_array_equal(logits, expected[1])
    assert found.dtype == np.float64 and found.shape == (60, 2) and 40 < found.mean() < 60
    torch.save({name: each for name, each in state.items() if "targets" not in name}, tmp_path / "w.pt")
    words = ("import-weights", tmp_path / "w.pt", "--graph", graph, *options, "--run-dir", tmp_path / "bare")
    assert call(*words) == 2 and "expected the mean and the deviation of 2 targets" in capsys.readouterr().err
    assert call(*words, "--target-scale", "none") == 0
    assert abs(predicted(tmp_path / "bare")[0].mean()) < 5, "as the weights have them"


@pytest.mark.parametrize(
    "file, more, words",
    [
        ("m.safetensors", ["--hidden", 7], "convs.0.own.weight: expected [6, 7], got [6, 6]"),
        ("m.safetensors", ["--layers", 2], "convs.2.own.weight: expected none, got [6, 3]"),
        ("m.safetensors", ["--norm", "batch"], "norms.0.weight: expected [6], got none"),
        ("pyg.safetensors", ["--hidden", 7], "convs.0.lin_l.weight: expected [7, 6], got [6, 6]"),
        ("pyg.safetensors", ["--norm", "batch"], "norms.0.module.weight: expected [6], got none"),
        ("module.pt", [], "module.pt cannot be read"),
        ("broken.safetensors", [], "broken.safetensors cannot be read"),
        ("absent.pt", [], "absent.pt cannot be read"),
        ("weights.bin", [], "expected a name that ends with .safetensors, .pt or .pth"),
    ],
)
def test_what_does_not_fit_is_listed(runs, tmp_path, capsys, file, more, words):
    run_dir, graph, options = runs("sage plain")
    call("export", run_dir, "-o", tmp_path / "m.safetensors")
    call("export", run_dir, "-o", tmp_path / "pyg.safetensors", "--to", "pyg")
    torch.save(torch.nn.Linear(2, 2), tmp_path / "module.pt")
    (tmp_path / "broken.safetensors").write_bytes(b"nothing")
    capsys.readouterr()
    code = call("import-weights", tmp_path / file, "--graph", graph, "--run-dir", tmp_path / "in", *options, *more)
    errors = capsys.readouterr().err.strip().splitlines()
    assert code == 2 and len(errors) == 1 and words in errors[0], errors
    assert not (tmp_path / "in").exists()


def test_a_file_of_weights_names_no_code(tmp_path):
    about = {"options": {"model": "gcn", "layers": 2, "plugin": "/theirs.py"}}
    safetensors.save_file({"w": torch.zeros(1)}, tmp_path / "w.safetensors", {ENTRY: json.dumps(about)})
    assert options_of_file(str(tmp_path / "w.safetensors")) == {"model": "gcn", "layers": 2}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_pyg_computes_the_same_and_its_weights_come_in(runs, predicted, tmp_path, capsys, name):
    """Weights of a network that has never been here: other values, biases before the batch norm, running statistics.
    docs/pyg_network.py builds the network from an exported file.
    """
    pytest.importorskip("torch_geometric", reason="PyG is not installed")
    run_dir, graph, options = runs(name)
    assert call("export", run_dir, "-o", tmp_path / "m.safetensors", "--to", "pyg", "--weights", "last") == 0
    names, arrays = {}, np.load(graph.with_suffix(".npz"))
    file = repr(str(tmp_path / "m.safetensors"))
    exec(read("pyg_network.py").replace('"pyg.safetensors"', file), names)
    network = names["net"]
    x, edges = torch.from_numpy(arrays["x"]), torch.from_numpy(arrays["edge_index"])
    more = {key: torch.from_numpy(arrays[key]) for key in ("edge_weight", "edge_type", "node_type") if key in arrays}
    with torch.no_grad():
        found = network(x, edges, **more).numpy()
    np.testing.assert_allclose(found, predicted(run_dir)[1], rtol=1e-5, atol=1e-5)
    with torch.no_grad():
        for key, tensor in network.state_dict().items():
            if tensor.dtype == torch.float32 and not (name == "transformer" and key.endswith("lin_value.bias")):
                tensor.copy_(torch.rand_like(tensor) + (0.5 if "running_var" in key else -0.3))
        expected = network(x, edges, **more).numpy()
    torch.save(network.state_dict(), tmp_path / "w.pt")
    words = ("import-weights", tmp_path / "w.pt", "--graph", graph, *options, "--run-dir")
    assert call(*words, tmp_path / "in") == 0
    np.testing.assert_allclose(predicted(tmp_path / "in")[1], expected, rtol=1e-5, atol=2e-5)
    if name == "transformer":  # no batch norm takes this bias away
        torch.save({**network.state_dict(), "convs.0.lin_value.bias": torch.ones(18)}, tmp_path / "w.pt")
        assert call(*words, tmp_path / "again") == 2 and "lin_value.bias is not zero" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gcn", "sage", "gat"])
def test_weights_of_dgl_come_back(runs, tmp_path, name):
    """Under the names of a module whose layers are called `layers`, as in DGL's examples."""
    run_dir, graph, options = runs(name)
    call("export", run_dir, "-o", tmp_path / "dgl.safetensors", "--to", "dgl", "--weights", "last")
    state = safetensors.load_file(tmp_path / "dgl.safetensors")
    torch.save({key.replace("convs.", "layers."): tensor for key, tensor in state.items()}, tmp_path / "dgl.pt")
    new = tmp_path / "run"
    assert call("import-weights", tmp_path / "dgl.pt", "--graph", graph, "--run-dir", new, *options) == 0
    both = []
    for each in (run_dir, new):
        call("export", each, "-o", tmp_path / "own.safetensors", "--weights", "last", "--force")
        both.append(safetensors.load_file(tmp_path / "own.safetensors"))
    assert both[0].keys() == both[1].keys()
    for key, tensor in both[0].items():
        torch.testing.assert_close(both[1][key], tensor, rtol=1e-6, atol=1e-6)


def test_export_says_why_not(runs):
    """Each reason of docs/definitions.md by itself."""
    with GraphFile(runs("sage plain")[1]) as file:
        plain = file.meta
    directed, weighted = replace(plain, undirected=False), replace(plain, weighted=True)
    cases = [
        ("pyg", {}, directed, "add", "directed"),
        ("dgl", {}, directed, "add", ""),
        ("dgl", {"model": "sgc"}, directed, "add", "directed"),
        ("dgl", {}, weighted, "add", "weights"),
        ("pyg", {}, weighted, "add", ""),
        ("pyg", {"model": "sage"}, weighted, "keep", "weights"),
        ("pyg", {"model": "gin"}, weighted, "keep", "weights"),
        ("pyg", {"model": "rgcn"}, plain, "add", "self loops"),
        ("dgl", {"model": "gatv2"}, plain, "add", "no layer"),
        ("pyg", {"model": "pna"}, plain, "keep", "no layer"),
    ]
    for to, options, meta, loops, words in cases:
        config = make_config({"graph": "g.h5", "self_loops": loops}, registry_choices())
        found = LIBRARIES[to].reason_against(ModelSpec(ModelConfig(**options), 6, 3), meta, config)
        assert (words in found) if words else found == "", (to, options, found)
