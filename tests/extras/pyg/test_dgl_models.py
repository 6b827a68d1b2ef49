"""Models that DGL itself trained (dgl_models.py) give DGL's outputs here."""

import h5py
import numpy as np
import pytest
import torch

from partition_tools.cli.import_graph import import_graph
from partition_tools.cli.partition_graph import partition_graph

from . import dgl_models


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dgl")
    with np.load(dgl_models.ARCHIVE) as given:
        third = np.arange(dgl_models.NODES) % 3
        masks = {f"{name}_mask": third == place for place, name in enumerate(("train", "val", "test"))}
        np.savez(folder / "g.npz", edge_index=given["edge_index"], x=given["x"], y=given["y"], **masks)
    import_graph(folder / "g.npz", folder / "g.h5")
    partition_graph(folder / "g.h5", [1, 2], num_clusters=6)
    return folder / "g.h5"


@pytest.mark.parametrize("name", dgl_models.MODELS)
def test_outputs_are_those_of_dgl(graph, command, tmp_path, name):
    with np.load(dgl_models.ARCHIVE) as given:
        first, expected = f"{name}/weights/", given[f"{name}/out"]
        state = {key[len(first) :]: torch.from_numpy(given[key]) for key in given if key.startswith(first)}
    torch.save(state, tmp_path / "dgl.pt")
    words = ["import-weights", tmp_path / "dgl.pt", "--graph", graph, "--run-dir", tmp_path / "run", "--model", name]
    assert command(*words, "--layers", 2, *dgl_models.MODELS[name]).code == 0
    done = command("predict", tmp_path / "run", "--logits", "-o", tmp_path / "p.h5")
    assert done.code == 0, done.err
    with h5py.File(tmp_path / "p.h5") as file:
        np.testing.assert_allclose(file["logit"][:], expected, rtol=1e-5, atol=1e-5)
