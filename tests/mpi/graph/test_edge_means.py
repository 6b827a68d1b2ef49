"""`--features edges`: the mean of a node's in-edges' features, against a list of all edges, and in training."""

import graphs
import numpy as np
import pytest
import torch

from hpcgnn.app.train import train
from hpcgnn.errors import ConfigError, GraphError
from hpcgnn.graph.load import load_local_graph
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.options.inputs import inputs_of

from ..edge_rows import EDGE, GRAPHS, maps_of, rows_of, save
from ..gathering import whole
from ..runs import session_of
from ..training import configure, curve


def means(graph, src, dst, rows):
    """(n, EDGE) float64, of the in-edges of each node; 0 where there are none."""
    total = np.zeros((graph.num_nodes, EDGE))
    np.add.at(total, dst, rows)
    return total / np.maximum(np.bincount(dst, minlength=graph.num_nodes), 1)[:, None]


@pytest.mark.parametrize("name", GRAPHS)
def test_columns_beside_a_list_of_all_edges(comm, edge_files, monkeypatch, name, drawn=None):
    """Added self loops, and edges that `drawn` takes out, have no part in a mean."""
    monkeypatch.setattr("hpcgnn.graph.own_rows._TILE_EDGES", 5)
    graph, rows = GRAPHS[name], rows_of(GRAPHS[name])
    kept = slice(None) if drawn is None else drawn.sides(graph.src, graph.dst, graph.num_nodes) == 0
    expected = means(graph, graph.src[kept], graph.dst[kept], rows[kept])
    with GraphFile(edge_files[name]) as file:
        for owner in maps_of(comm, file):
            options = {"inputs": inputs_of("file+edges"), **({} if drawn is None else {"task_edges": drawn})}
            local = load_local_graph(file, owner, comm, 7, "add", torch.float64, **options)
            found = whole(comm, local, local.features)
            np.testing.assert_allclose(found, np.concatenate([graph.features, expected], 1), atol=1e-12)


@pytest.mark.ranks(2)
def test_training(comm, edge_files, session_path):
    """The curve equals the same columns' as features of the file. (Predictions: nn/test_edge_features.py.)"""
    graph, path = GRAPHS["random directed"], edge_files["random directed"]
    columns = means(graph, graph.src, graph.dst, rows_of(graph)).astype(np.float32)
    same = save(comm, session_path / "edge-means-same.h5", graphs.replace(graph, features=columns))
    usual = {"model": "sage", "precision": "fp64", "dropout": 0.3}
    expected = curve(comm, configure(same, **usual), "metis", None, 5)
    found = curve(comm, configure(path, features="edges", **usual), "metis", None, 5)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    with pytest.raises(GraphError, match="--features edges: the edges of .* have no features"):
        train(configure(same, features="edges", epochs=1), session_of(comm))
    with pytest.raises(ConfigError, match="--inductive .* --features edges"):
        configure(path, features="edges", inductive=True)
