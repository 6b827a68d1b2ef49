"""Jumping knowledge, maps of a layer's input added to it, and the hops of appnp, on every number of ranks.

Outputs and gradients are compared with dense matrices.
"""

import graphs
import numpy as np
import oracle
import pytest
import torch

from ..small import edges_of, written
from ..training import build_trainer, configure, outputs_and_gradients
from . import formulas

LAYERS, TELEPORT = 3, 0.2
CASES = [
    {"model": "gcn", "jumping": "cat"},
    {"model": "sage", "jumping": "max", "residual": True},
    {"model": "sage", "jumping": "cat", "residual": True},
    {"model": "sage", "jumping": "sum"},
    {"model": "gcn", "jumping": "last", "linear_residual": True},
    {"model": "gat", "jumping": "last", "linear_residual": True, "residual": True, "heads": 2},
    {"model": "appnp", "hops": 4, "teleport": TELEPORT, "prune": "none"},
    {"model": "appnp", "hops": 0, "prune": "none"},
]


@pytest.fixture(scope="module")
def odd(comm, session_path):
    """[(graph, layout, file)]"""
    made = [graphs.random_undirected(weighted=True), graphs.random_directed(), graphs.no_edges()]
    return [written(comm, session_path, graphs.with_task(graph), "jumping") for graph in made]


def outputs(graph, parameters, model, hops=0, jumping="", residual=False):
    """By the formulas, of all nodes, without dropout. A layer with `own.weight` adds a map of its input."""
    loops = "keep" if model == "sage" else "add"
    a = oracle.adjacency(graph.num_nodes, graph.src, graph.dst, graph.weight, loops)
    s = torch.from_numpy(oracle.operator(a, "mean" if model == "sage" else "sym"))
    x, seen = torch.from_numpy(graph.features).double(), []
    for layer in range(LAYERS):
        part = {name.split(".", 2)[2]: each for name, each in parameters.items() if name.startswith(f"convs.{layer}.")}
        if model == "sage":
            h = s @ x @ part["neighbour.weight"] + formulas.affine(part, "own", x)
        elif model == "gat":
            h = formulas.gat(part, x, *map(torch.from_numpy, edges_of(graph, "add")))
        else:
            h = formulas.affine(part, "linear", x if model == "appnp" else s @ x)
        if model != "sage" and "own.weight" in part:
            h = h + x @ part["own.weight"]
        if model != "appnp" or layer + 1 < LAYERS:
            h = torch.nn.functional.elu(h) if model == "gat" else torch.relu(h)
        x = h + x if residual and layer else h
        seen.append(x)
    if model == "appnp":
        for _ in range(hops):
            x = (1 - TELEPORT) * (s @ x) + TELEPORT * seen[-1]
        return x
    stack = torch.stack(seen)
    joined = {"cat": torch.cat(seen, 1), "max": stack.max(0).values, "sum": stack.sum(0), "last": x}[jumping]
    return formulas.affine(parameters, "jump", joined)


@pytest.mark.parametrize("options", CASES, ids=str)
def test_outputs_and_gradients(comm, odd, options):
    usual = {"layers": LAYERS, "dropout": 0.0, "hidden": 6, "precision": "fp64", "prune": "auto"}
    ours = {name: options[name] for name in ("model", "hops", "jumping", "residual") if name in options}
    for graph, _, path in odd:
        labels, nodes = torch.from_numpy(graph.labels), torch.from_numpy((graph.split == 1) & (graph.labels >= 0))
        for map_name in ("random", "one empty"):
            rows = 7 if options.get("hops", 1) else None  # without hops nothing is sent
            trainer = build_trainer(comm, configure(path, **{**usual, **options}), map_name, rows)
            own = dict(trainer.model.named_parameters())
            linear = options["model"] != "sage" and "convs.0.own.weight" in own
            assert linear == options.get("linear_residual", False)
            mine, share, parameters = outputs_and_gradients(trainer, trainer.training_graph)
            expected = outputs(graph, parameters, **ours)
            loss = oracle.loss(expected, labels, nodes)
            loss.backward()
            np.testing.assert_allclose(mine.detach(), expected.detach()[trainer.graph.ids], rtol=0, atol=1e-12)
            assert float(comm.total(share.detach().clone())) == pytest.approx(float(loss.detach()))
            for name, tensor in own.items():
                torch.testing.assert_close(tensor.grad, parameters[name].grad, rtol=0, atol=1e-12)
