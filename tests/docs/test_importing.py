"""The recipes of docs/importing.md import the named data, run one by one on files of the names that they have."""

import re
import shlex
from pathlib import Path

import h5py
import networkx
import numpy as np
import pandas as pd
import pytest
import scipy.io
import scipy.sparse
from pages import blocks, read, run

from hpcgnn.graphfile.storage import GraphFile
from partition_tools.cli.main import main

PAGE = Path(__file__).parents[2] / "docs" / "importing.md"
N = 40


def recipes():
    """The imports among the recipes, without data sets, partitions and meshes (tests/extras)."""
    text = PAGE.read_text(encoding="utf-8").partition("\n## Formats")[0] if PAGE.exists() else ""
    lines = "".join(blocks(text, "bash")).replace("\\\n", " ").splitlines()
    return [
        line
        for line in lines
        if " import " in line and not re.search("~/dataset|partitioned/|gnn_outputs|mesh.vtu", line)
    ]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """A folder with every file that the recipes name."""
    folder = tmp_path_factory.mktemp("inputs")
    draws = np.random.default_rng(1)
    edges = pd.DataFrame(sorted(networkx.gnm_random_graph(N, 120, seed=1).edges), columns=["src", "dst"])
    features, labels = draws.random((N, 3), np.float32), np.arange(N) % 2
    tables = {
        "edges": edges,
        "features": pd.DataFrame(features, columns=list("abc")).reset_index(names="id"),
        "labels": pd.DataFrame({"id": np.arange(N), "label": labels}),
    }
    for name, table in tables.items():
        table.to_csv(folder / f"{name}.csv", index=False)
        table.to_parquet(folder / f"{name}.parquet")
    np.save(folder / "features.npy", features)
    np.save(folder / "labels.npy", labels)
    both = np.concatenate([edges.to_numpy().T, edges.to_numpy().T[::-1]], 1)
    matrix = scipy.sparse.coo_array((np.ones(both.shape[1]), tuple(both)), (N, N))
    scipy.sparse.save_npz(folder / "matrix.npz", matrix)
    scipy.io.mmwrite(folder / "matrix.mtx", matrix)
    graph = networkx.from_edgelist(edges.to_numpy().tolist())
    graph.add_nodes_from(range(N))
    near = [" ".join(str(other + 1) for other in sorted(graph[node])) for node in range(N)]
    (folder / "mesh.graph").write_text("\n".join([f"{N} {graph.number_of_edges()}", *near]) + "\n")
    masks = {f"{name}_mask": np.arange(N) % 3 == k for k, name in enumerate(("train", "val", "test"))}
    np.savez(folder / "g.npz", edge_index=both, x=features, y=labels, **masks)
    return folder


@pytest.mark.parametrize("line", recipes(), ids=lambda line: line.split(" import ")[1].split()[0])
def test_a_recipe(inputs, tmp_path, monkeypatch, line):
    words = shlex.split(line)[3:]
    monkeypatch.chdir(inputs)
    output = tmp_path / "graph.h5"
    assert main([str(output) if word == "graph.h5" else word for word in words]) == 0
    with GraphFile(output) as file:
        assert file.meta.num_nodes == N and file.meta.num_edges == 240 and file.meta.undirected
        assert file.meta.num_classes == 2
        assert file.meta.num_features == (3 if any(name in line for name in ("--features", "g.npz")) else 0)
    with h5py.File(output) as file:
        assert {1, 2, 3} == set(np.unique(file["nodes/split"][:]))


def test_held_out_edges(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run("importing.md", "links.h5")
    with GraphFile(tmp_path / "links.h5") as file:
        assert file.shape("links/val/edges") == (2, 2) and file.shape("links/test/negatives") == (3, 2)
        assert file.partitionings() == {"metis": [1, 2]}


def test_there_is_a_recipe_for_each_kind():
    read("importing.md")
    named = {line.split(" import ")[1].split()[0].rpartition(".")[2] for line in recipes()}
    assert named == {"csv", "parquet", "npz", "mtx", "graph"}
