"""appnp on every number of ranks: outputs and gradients beside dense matrices, the curve, and the bytes of its hops."""

import graphs
import numpy as np
import oracle
import pytest
import torch

from ..small import written
from ..training import build_trainer, configure, outputs_and_gradients

LAYERS, HOPS, TELEPORT = 3, 4, 0.2


@pytest.fixture(scope="module")
def odd(comm, session_path):
    """[(graph, layout, file)]"""
    made = [graphs.random_undirected(weighted=True), graphs.random_directed(), graphs.no_edges()]
    return [written(comm, session_path, graphs.with_task(graph), "appnp") for graph in made]


def outputs(graph, parameters, hops):
    """By the formulas, of all nodes: without dropout."""
    a = oracle.adjacency(graph.num_nodes, graph.src, graph.dst, graph.weight, "add")
    s = torch.from_numpy(oracle.operator(a, "sym"))
    h = torch.from_numpy(graph.features).double()
    for layer in range(LAYERS):
        h = h @ parameters[f"convs.{layer}.linear.weight"] + parameters[f"convs.{layer}.linear.bias"]
        h = torch.relu(h) if layer + 1 < LAYERS else h
    z = h
    for _ in range(hops):
        z = (1 - TELEPORT) * (s @ z) + TELEPORT * h
    return z


def test_outputs_and_gradients(comm, odd):
    options = {"model": "appnp", "layers": LAYERS, "teleport": TELEPORT, "dropout": 0.0, "hidden": 6}
    for graph, _, path in odd:
        labels, train = torch.from_numpy(graph.labels), torch.from_numpy((graph.split == 1) & (graph.labels >= 0))
        for map_name, hops in (("random", HOPS), ("one empty", HOPS), ("random", 0)):
            trainer = build_trainer(comm, configure(path, precision="fp64", hops=hops, **options), map_name, 7)
            own = dict(trainer.model.named_parameters())
            mine, share, parameters = outputs_and_gradients(trainer, trainer.graph)
            expected = outputs(graph, parameters, hops)
            loss = oracle.loss(expected, labels, train)
            loss.backward()
            np.testing.assert_allclose(mine.detach(), expected.detach()[trainer.graph.ids], rtol=0, atol=1e-12)
            assert float(comm.total(share.detach().clone())) == pytest.approx(float(loss.detach()))
            assert parameters.keys() == own.keys() and len(own) == 2 * LAYERS
            for name, tensor in own.items():
                torch.testing.assert_close(tensor.grad, parameters[name].grad, rtol=0, atol=1e-12)
