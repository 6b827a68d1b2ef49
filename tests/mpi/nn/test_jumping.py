"""Jumping knowledge on every number of ranks: outputs and gradients beside dense matrices, the curve of all kinds of
layers, and what it does not go together with.
"""

import graphs
import numpy as np
import oracle
import pytest
import torch

from ..small import edges_of, written
from ..training import build_trainer, configure, outputs_and_gradients
from . import formulas

pytestmark = pytest.mark.ranks(2)

LAYERS = 3


@pytest.fixture(scope="module")
def odd(comm, session_path):
    """[(graph, layout, file)]"""
    made = [graphs.random_undirected(weighted=True), graphs.random_directed()]
    return [written(comm, session_path, graphs.with_task(graph), "jumping") for graph in made]


def outputs(graph, parameters, kind, jumping, residual):
    """By the formulas, of all nodes, without dropout. A layer with `own.weight` adds a map of its input."""
    a = oracle.adjacency(graph.num_nodes, graph.src, graph.dst, graph.weight, "add" if kind == "gcn" else "keep")
    s = torch.from_numpy(oracle.operator(a, {"sage": "mean"}.get(kind, "sym")))
    x, seen = torch.from_numpy(graph.features).double(), []
    for layer in range(LAYERS):
        part = {name.split(".", 2)[2]: each for name, each in parameters.items() if name.startswith(f"convs.{layer}.")}
        if kind == "gcn":
            h = s @ x @ part["linear.weight"] + part["linear.bias"]
        elif kind == "gat":
            h = formulas.gat(part, x, *map(torch.from_numpy, edges_of(graph, "add")))
        else:
            h = s @ x @ part["neighbour.weight"] + x @ part["own.weight"] + part["own.bias"]
        if kind != "sage" and "own.weight" in part:
            h = h + x @ part["own.weight"]
        h = torch.nn.functional.elu(h) if kind == "gat" else torch.relu(h)
        x = h + x if residual and layer else h
        seen.append(x)
    stack = torch.stack(seen)
    joined = {"cat": torch.cat(seen, 1), "max": stack.max(0).values, "sum": stack.sum(0), "last": x}[jumping]
    return joined @ parameters["jump.weight"] + parameters["jump.bias"]


@pytest.mark.parametrize(
    "kind, jumping, residual, linear",
    [
        ("gcn", "cat", False, False),
        ("sage", "max", True, False),
        ("sage", "cat", True, False),
        ("sage", "sum", False, False),
        ("gcn", "last", False, True),
        ("gat", "last", True, True),
    ],
)
def test_outputs_and_gradients(comm, odd, kind, jumping, residual, linear):
    options = {"linear_residual": linear, "heads": 2}
    options |= {"model": kind, "layers": LAYERS, "dropout": 0.0, "hidden": 6, "precision": "fp64", "prune": "auto"}
    for graph, _, path in odd:
        labels, nodes = torch.from_numpy(graph.labels), torch.from_numpy((graph.split == 1) & (graph.labels >= 0))
        for map_name in ("random", "one empty"):
            trainer = build_trainer(comm, configure(path, jumping=jumping, residual=residual, **options), map_name, 7)
            own = dict(trainer.model.named_parameters())
            assert linear == (kind != "sage" and "convs.0.own.weight" in own)
            mine, _, parameters = outputs_and_gradients(trainer, trainer.training_graph)
            expected = outputs(graph, parameters, kind, jumping, residual)
            oracle.loss(expected, labels, nodes).backward()
            np.testing.assert_allclose(mine.detach(), expected.detach()[trainer.graph.ids], rtol=0, atol=1e-12)
            for name, tensor in own.items():
                torch.testing.assert_close(tensor.grad, parameters[name].grad, rtol=0, atol=1e-12)
