"""appnp on every number of ranks: outputs and gradients beside dense matrices, the curve, and the bytes of its hops."""

import graphs
import numpy as np
import oracle
import pytest
import torch

from hpcgnn.errors import ConfigError

from ..small import written
from ..training import build_trainer, configure, curve, make_graphs, outputs_and_gradients

LAYERS, HOPS, TELEPORT = 3, 4, 0.2


@pytest.fixture(scope="module")
def odd(comm, session_path):
    """[(graph, layout, file)]"""
    made = [graphs.random_undirected(weighted=True), graphs.random_directed(), graphs.no_edges()]
    return [written(comm, session_path, graphs.with_task(graph), "appnp") for graph in made]


def outputs(graph, parameters, hops=HOPS):
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
    options = {"model": "appnp", "layers": LAYERS, "hops": HOPS, "teleport": TELEPORT, "dropout": 0.0, "hidden": 6}
    for graph, _, path in odd:
        labels, train = torch.from_numpy(graph.labels), torch.from_numpy((graph.split == 1) & (graph.labels >= 0))
        for map_name in ("random", "one empty"):
            trainer = build_trainer(comm, configure(path, precision="fp64", **options), map_name, 7)
            own = dict(trainer.model.named_parameters())
            mine, share, parameters = outputs_and_gradients(trainer, trainer.graph)
            expected = outputs(graph, parameters)
            loss = oracle.loss(expected, labels, train)
            loss.backward()
            np.testing.assert_allclose(mine.detach(), expected.detach()[trainer.graph.ids], rtol=0, atol=1e-12)
            assert float(comm.total(share.detach().clone())) == pytest.approx(float(loss.detach()))
            assert parameters.keys() == own.keys() and len(own) == 2 * LAYERS
            for name, tensor in own.items():
                torch.testing.assert_close(tensor.grad, parameters[name].grad, rtol=0, atol=1e-12)


@pytest.fixture(scope="module")
def planted(comm, session_path):
    return make_graphs(comm, session_path, nodes=300)


@pytest.mark.parametrize(
    "options",
    [
        {"norm": "batch", "residual": True, "prune": "auto"},
        {"layers": 1, "halo": "least"},
        {"schedule": "stale", "stale_epochs": 0},
        {"schedule": "bns", "boundary_rate": 1.0},
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["undirected", "directed multi-label"])
def test_the_curve_does_not_depend_on_the_ranks(comm, planted, name, options):
    config = configure(planted[name], model="appnp", dropout=0.3, **options)
    expected = comm.broadcast_object(curve(comm, config, None, None, 8) if comm.rank == 0 else None)
    found = curve(comm, config, "metis", 60, 8)
    assert expected[-1] < expected[0]
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_each_hop_sends_rows_as_wide_as_the_classes(comm, planted):
    trainer = build_trainer(comm, configure(planted["undirected"], model="appnp", hops=HOPS), "metis")
    trainer.step(0)
    entry = trainer.comm.ledger.take()
    rows = comm.total(torch.tensor([trainer.local.inward.plan.num_halo])).item()
    classes = trainer.local.num_classes
    for kind in ("halo_forward", "halo_backward"):
        sent = entry[kind].bytes_sent if kind in entry else 0
        assert comm.total(torch.tensor([sent])).item() == rows * HOPS * classes * 4
    assert "input" not in entry


def test_without_hops_it_is_a_perceptron(comm, odd):
    graph, _, path = odd[0]
    options = {"model": "appnp", "layers": LAYERS, "hops": 0, "dropout": 0.0, "hidden": 6, "precision": "fp64"}
    trainer = build_trainer(comm, configure(path, **options), "random")
    trainer.comm.ledger.take()
    parameters = {name: tensor.detach().clone() for name, tensor in trainer.model.named_parameters()}
    mine = trainer.model(trainer.graph).detach()
    np.testing.assert_allclose(mine, outputs(graph, parameters, 0)[trainer.graph.ids], rtol=0, atol=1e-12)
    trainer.step(0)
    assert not {"halo_forward", "halo_backward", "input"} & trainer.comm.ledger.take().keys()


def test_layers_one_by_one_are_refused(planted):
    with pytest.raises(ConfigError, match="the hops of --model appnp change in every step"):
        configure(planted["undirected"], model="appnp", schedule="lazy")
