"""`--features edges`: the mean of a node's in-edges' features, beside a list of all edges, and in training."""

from types import SimpleNamespace

import graphs
import numpy as np
import pytest
import torch

import partition_tools
from hpcgnn.app.resuming import options_of_run
from hpcgnn.app.train import train
from hpcgnn.app.trained import load_trained
from hpcgnn.config import make_config
from hpcgnn.errors import ConfigError, GraphError
from hpcgnn.graph.held_out import LinkSplit
from hpcgnn.graph.load import load_local_graph
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.options.inputs import inputs_of

from ..gathering import whole
from ..training import CHOICES, configure, curve

pytestmark = pytest.mark.ranks(1, 2, 3, 4)

EDGE, SPLIT = 3, LinkSplit(17, (0.6, 0.2, 0.2))
GRAPHS = {
    graph.name: graphs.with_task(graph)
    for graph in (graphs.random_directed(), graphs.random_undirected(weighted=True), graphs.star(), graphs.no_edges())
}


def save(path, graph, edge_features):
    split = {which: (graph.split == code) & (graph.labels >= 0) for which, code in (("train", 1), ("val", 2))}
    what = np.stack([graph.src, graph.dst]), graph.features, graph.labels, split
    partition_tools.save_graph(path, *what, edge_weight=graph.weight, edge_features=edge_features, ranks=[1, 2, 3, 4])


@pytest.fixture(scope="module")
def files(comm, session_path):
    """{name: (graph, rows of its edges, file)}"""
    found = {}
    for name, graph in GRAPHS.items():
        rows = np.random.default_rng(8).standard_normal((len(graph.src), EDGE)).astype(np.float32)
        found[name] = graph, rows, session_path / f"edge-means-{name.replace(' ', '-')}.h5"
        if comm.rank == 0 and not found[name][2].exists():
            save(found[name][2], graph, rows)
    comm.barrier()
    return found


@pytest.mark.parametrize("links", [None, SPLIT], ids=["all edges", "links"])
@pytest.mark.parametrize("name", GRAPHS)
def test_columns_beside_a_list_of_all_edges(comm, files, monkeypatch, name, links):
    """Added self loops and held-out edges have no part in a mean."""
    monkeypatch.setattr("hpcgnn.graph.edge_features._TILE_EDGES", 5)
    graph, rows, path = files[name]
    src, dst = graph.src, graph.dst
    if links:
        kept = SPLIT.sides(src, dst, graph.num_nodes) == 0
        src, dst, rows = src[kept], dst[kept], rows[kept]
    expected = np.zeros((graph.num_nodes, EDGE))
    np.add.at(expected, dst, rows)
    expected /= np.maximum(np.bincount(dst, minlength=graph.num_nodes), 1)[:, None]
    with GraphFile(path) as file:
        nodes = np.random.default_rng(2).integers(0, max(1, comm.size - 1), file.meta.num_nodes, dtype=np.int32)
        for owner in (file.cluster_map("metis", comm.size)[0], nodes):
            options = {"inputs": inputs_of("file+edges"), "links": links}
            local = load_local_graph(file, owner, comm, 7, "add", torch.float64, **options)
            found = whole(comm, local, local.features)
            np.testing.assert_allclose(found, np.concatenate([graph.features, expected], 1), atol=1e-12)


@pytest.mark.usefixtures("no_pictures")
def test_training_and_prediction_on_another_graph(comm, files, session_path):
    """The curve is that of the same columns as features of the file. Another graph has as many features of edges."""
    graph, rows, path = files["random directed"]
    runs, others = session_path / "edge-means-run", [session_path / f"edge-means-other-{width}.h5" for width in (2, 3)]
    same, means = session_path / "edge-means-same.h5", np.zeros((graph.num_nodes, EDGE))
    np.add.at(means, graph.dst, rows)
    means /= np.maximum(np.bincount(graph.dst, minlength=graph.num_nodes), 1)[:, None]
    if comm.rank == 0:
        save(same, graphs.replace(graph, features=means.astype(np.float32)), None)
        for width, other in zip((2, 3), others):
            save(other, graph, rows[:, :width])
    comm.barrier()
    usual = {"model": "sage", "precision": "fp64", "dropout": 0.3}
    expected = curve(comm, configure(same, **usual), "metis", None, 5)
    found = curve(comm, configure(path, features="edges", **usual), "metis", None, 5)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    session = SimpleNamespace(comm=comm, threads=1)
    assert train(configure(path, features="edges", epochs=1, run_dir=str(runs)), session) == 0
    comm.barrier()
    narrow, alike = (make_config(options_of_run(runs, {"graph": str(other)}), CHOICES) for other in others)
    with pytest.raises(GraphError, match="expected features 3, got 2"):
        load_trained(narrow, session, "last", other_graph=True)
    assert load_trained(alike, session, "last", other_graph=True).logits()[0].shape[1] == graph.num_classes
    with pytest.raises(GraphError, match="--features edges: the edges of .* have no features"):
        train(configure(same, features="edges", epochs=1), session)
    with pytest.raises(ConfigError, match="--inductive .* --features edges"):
        configure(path, features="edges", inductive=True)
