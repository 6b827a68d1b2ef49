"""Small models that DGL 2.1.0 itself trained give DGL's outputs here.

Arrays of dgl-models.npz: `edge_index`, `x`, `y`; `NAME/out` has a model's outputs, and `NAME/weights/…` its state dict.
The program that made them is in the repository's history, in dgl_models.py.
"""

from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from partition_tools.cli.import_graph import import_graph
from partition_tools.cli.partition_graph import partition_graph

ARCHIVE = Path(__file__).with_name("dgl-models.npz")
NODES = 30
#: Options of each model here.
MODELS = {**dict.fromkeys(("gcn", "sage", "gin"), ("--hidden", 4)), "gat": ("--hidden", 4, "--heads", 2), "sgc": ()}


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dgl")
    with np.load(ARCHIVE) as given:
        third = np.arange(NODES) % 3
        masks = {f"{name}_mask": third == place for place, name in enumerate(("train", "val", "test"))}
        np.savez(folder / "g.npz", edge_index=given["edge_index"], x=given["x"], y=given["y"], **masks)
    import_graph(folder / "g.npz", folder / "g.h5")
    partition_graph(folder / "g.h5", [1, 2], num_clusters=6)
    return folder / "g.h5"


@pytest.mark.parametrize("name", MODELS)
def test_outputs_are_those_of_dgl(graph, command, tmp_path, name):
    with np.load(ARCHIVE) as given:
        first, expected = f"{name}/weights/", given[f"{name}/out"]
        state = {key[len(first) :]: torch.from_numpy(given[key]) for key in given if key.startswith(first)}
    torch.save(state, tmp_path / "dgl.pt")
    words = ["import-weights", tmp_path / "dgl.pt", "--graph", graph, "--run-dir", tmp_path / "run", "--model", name]
    assert command(*words, "--layers", 2, *MODELS[name]).code == 0
    done = command("predict", tmp_path / "run", "--logits", "-o", tmp_path / "p.h5")
    assert done.code == 0, done.err
    with h5py.File(tmp_path / "p.h5") as file:
        np.testing.assert_allclose(file["logit"][:], expected, rtol=1e-5, atol=1e-5)
