"""Training on the subgraph of the training nodes, on every number of ranks, and evaluation on the whole graph.

The curve is the same as on a graph file that has nothing else.
"""

from dataclasses import replace

import graphs
import numpy as np
import pytest
import torch

from ..small import written
from ..training import build_trainer, configure

pytestmark = pytest.mark.ranks(2)

MODELS = {
    "gcn": {"norm": "batch", "halo": "auto"},
    "sage": {"norm": "batch", "residual": True, "keep_input": "always"},
    "appnp": {"halo": "least"},
    "gat": {"heads": 2, "hidden": 4},
    "pna": {},
}


KINDS = ["undirected", "directed weighted", "sparse"]


@pytest.fixture(scope="module")
def files(request, comm, session_path):
    """(graph, its file, the file of its training nodes alone)."""
    directed = request.param == "directed weighted"
    graph = graphs.with_task(graphs.random_directed(weighted=True) if directed else graphs.random_undirected())
    nodes = (graph.split == graphs.TRAIN) & (graph.labels >= 0)
    number, among = np.cumsum(nodes) - 1, nodes[graph.src] & nodes[graph.dst]
    alone = replace(
        graph,
        name=f"{graph.name} alone",
        num_nodes=int(nodes.sum()),
        src=number[graph.src[among]],
        dst=number[graph.dst[among]],
        weight=None if graph.weight is None else graph.weight[among],
        features=graph.features[nodes],
        labels=graph.labels[nodes],
        split=graph.split[nodes],
    )
    sparse = request.param == "sparse"
    paths = [written(comm, session_path, each, "inductive", sparse)[2] for each in (graph, alone)]
    return graph, *paths


def losses_alone(path, config, epochs):
    trainer = build_trainer(None, config.replace(graph=str(path), inductive=False))
    return [trainer.step(epoch) for epoch in range(epochs)], trainer.evaluated_state()


@pytest.mark.parametrize(
    "files, kind",
    [(files, kind) for files in KINDS for kind in MODELS if files != "sparse" or kind == "gcn"],
    indirect=["files"],
)
def test_the_curve_is_that_of_a_graph_of_nothing_else(comm, files, kind):
    graph, path, alone = files
    usual = {"dropout": 0.0, "precision": "fp64", "lr": 0.02, "hidden": 6, "layers": 2}
    config = configure(path, model=kind, inductive=True, **{**usual, **MODELS[kind]})
    expected, state = comm.broadcast_object(losses_alone(alone, config, 5) if comm.rank == 0 else None)
    for map_name in ("random", "one empty") if kind == "gcn" else ("random",):
        trainer = build_trainer(comm, config, map_name, 7)
        found = [trainer.step(epoch) for epoch in range(5)]
        np.testing.assert_allclose(found, expected, rtol=1e-9)
        for name, tensor in trainer.evaluated_state().items():
            torch.testing.assert_close(tensor, state[name], rtol=1e-6, atol=1e-9)
    # Evaluation sees the whole graph: the same as a trainer of it with the same parameters.
    whole = build_trainer(comm, config.replace(inductive=False), "random", 7)
    whole.model.load_state_dict(trainer.model.state_dict())
    assert trainer.evaluate() == pytest.approx(whole.evaluate(), nan_ok=True)
    assert trainer.graph.num_nodes == graph.num_nodes
