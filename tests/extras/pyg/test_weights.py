"""`hpcgnn export --to` and `import-weights`: PyG's layers compute the same with the weights, and the way back."""

from dataclasses import replace

import h5py
import numpy as np
import pytest
import torch
from core.forked import train
from pages import example

from hpcgnn.__main__ import main
from hpcgnn.app.weights import LIBRARIES
from hpcgnn.config import make_config
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

TARGETS = {"gcn targets": {"graph": "targets"}}
of_models = pytest.mark.parametrize("name", MODELS)
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def graphs(tmp_path_factory):
    """A folder of graphs with self loops and nodes without edges, each node with one loop at most, as PyG has it."""
    folder, draw = tmp_path_factory.mktemp("weights"), np.random.default_rng(5)
    ends = draw.integers(0, NODES - 8, (2, 240))
    ends = np.unique(ends[:, ends[0] != ends[1]], axis=1)
    loops = np.arange(0, NODES, 5)
    for name in ("plain", "directed", "weighted", "typed", "targets"):
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
    return folder


@pytest.fixture(scope="module")
def runs(graphs):
    """run(name) -> (run directory, graph, options of the model) of a short run, made once."""
    made = {}

    def run(name):
        if name not in made:
            options = {"model": name.split()[0], "layers": 3, "hidden": 6, "graph": "plain"}
            options |= (MODELS | TARGETS)[name]
            graph, folder = graphs / f"{options.pop('graph')}.h5", graphs / f"run-{name.replace(' ', '-')}"
            words = [word for key, value in options.items() for word in given(key, value)]
            done = train(0, "--graph", graph, "--run-dir", folder, "--epochs", 5, "--lr", 0.05, *words)
            assert done.code == 0, done.err
            made[name] = folder, graph, words
        return made[name]

    return run


def given(key, value):
    flag = "--" + key.replace("_", "-")
    return [flag] if value is True else [flag, value]


def call(*words):
    return main([str(word) for word in words])


@pytest.fixture
def predicted(command, tmp_path):
    """predicted(run directory) -> the logits of its last epoch."""

    def logits(run_dir):
        done = command("predict", run_dir, "--logits", "--weights", "last", "--force", "-o", tmp_path / "p.h5")
        assert done.code == 0, done.err
        with h5py.File(tmp_path / "p.h5") as file:
            return file["logit"][:]

    return logits


def networks(path):
    """The networks that the recipe of docs/results.md builds from an exported file: {name: value}."""
    names = {}
    exec(example("results.md", "class Net").replace('"pyg.safetensors"', repr(str(path))), names)
    return names


def inputs(graph):
    """The arguments of a network of PyG's."""
    found = np.load(graph.with_suffix(".npz"))
    more = {name: torch.from_numpy(found[name]) for name in ("edge_weight", "edge_type", "node_type") if name in found}
    return torch.from_numpy(found["x"]), torch.from_numpy(found["edge_index"]), more


@of_models
def test_pyg_computes_the_same_and_its_weights_come_in(runs, predicted, tmp_path, name):
    """Weights of a network that has never been here: other values, biases before the batch norm, running statistics."""
    pytest.importorskip("torch_geometric", reason="PyG is not installed")
    run_dir, graph, options = runs(name)
    assert call("export", run_dir, "-o", tmp_path / "m.safetensors", "--to", "pyg", "--weights", "last") == 0
    network = networks(tmp_path / "m.safetensors")["net"]
    x, edges, more = inputs(graph)
    with torch.no_grad():
        found = network(x, edges, **more).numpy()
    np.testing.assert_allclose(found, predicted(run_dir), rtol=1e-5, atol=1e-5)
    with torch.no_grad():
        for key, tensor in network.state_dict().items():
            if tensor.dtype == torch.float32 and not (name == "transformer" and key.endswith("lin_value.bias")):
                tensor.copy_(torch.rand_like(tensor) + (0.5 if "running_var" in key else -0.3))
        expected = network(x, edges, **more).numpy()
    torch.save({"state_dict": network.state_dict(), "epoch": 3}, tmp_path / "w.pt")
    assert call("import-weights", tmp_path / "w.pt", "--graph", graph, "--run-dir", tmp_path / "in", *options) == 0
    np.testing.assert_allclose(predicted(tmp_path / "in"), expected, rtol=1e-5, atol=2e-5)


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


def test_targets_are_beside_the_layers(runs, predicted, tmp_path):
    """Values unknown to PyG's layers are in the file's metadata, and come in again."""
    run_dir, graph, _ = runs("gcn targets")
    assert call("export", run_dir, "-o", tmp_path / "m.safetensors", "--to", "pyg", "--weights", "last") == 0
    assert "targets.mean" not in safetensors.load_file(tmp_path / "m.safetensors")
    made = tmp_path / "in"
    assert call("import-weights", tmp_path / "m.safetensors", "--graph", graph, "--run-dir", made) == 0
    found, expected = (predicted(each) for each in (made, run_dir))
    np.testing.assert_array_equal(found, expected)


def test_what_does_not_fit_is_listed(runs, tmp_path, capsys):
    run_dir, graph, options = runs("sage")
    call("export", run_dir, "-o", tmp_path / "m.safetensors", "--to", "pyg")
    for more, words in (
        (["--hidden", 7], "convs.0.lin_l.weight: expected [7, 6], got [6, 6]"),
        (["--norm", "none"], "norms.0.module.weight: expected none"),
    ):
        new = tmp_path / "in"
        code = call("import-weights", tmp_path / "m.safetensors", "--graph", graph, "--run-dir", new, *options, *more)
        errors = capsys.readouterr().err.strip().splitlines()
        assert code == 2 and words in errors[-1], errors


def test_export_says_why_not(graphs):
    """Each reason of docs/definitions.md by itself."""
    with GraphFile(graphs / "plain.h5") as file:
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


def test_a_bias_that_no_batch_norm_takes_away(runs, tmp_path, capsys):
    pytest.importorskip("torch_geometric", reason="PyG is not installed")
    run_dir, graph, options = runs("transformer")
    call("export", run_dir, "-o", tmp_path / "m.safetensors", "--to", "pyg")
    state = safetensors.load_file(tmp_path / "m.safetensors")
    state["convs.0.lin_value.bias"] += 1
    torch.save(state, tmp_path / "w.pt")
    assert call("import-weights", tmp_path / "w.pt", "--graph", graph, "--run-dir", tmp_path / "in", *options) == 2
    assert "lin_value.bias is not zero" in capsys.readouterr().err
