"""`--model rgcn --self-loops add`: the added loops are one relation more.

They once had the type R where there were R coefficients, and every rank ended with an IndexError.
"""

from types import SimpleNamespace

import numpy as np
import oracle
import pytest
import torch

from hpcgnn.graphfile.storage import GraphFile
from partition_tools.cli.generate_graph import generate_graph
from partition_tools.cli.partition_graph import partition_graph
from partition_tools.generators.spec import Spec

from ..gathering import whole
from ..training import build_trainer, configure

NODES, RELATIONS = 120, 3


@pytest.fixture(scope="module")
def files(comm, session_path):
    """{name: path}: typed graphs, undirected, and directed and weighted; with one type of nodes, and with two."""
    kinds = {"undirected": {}, "directed": {"directed": True, "weighted": True, "node_types": 2}}
    paths = {name: session_path / f"self-loops-{name}.h5" for name in kinds}
    if comm.rank == 0:
        for name, options in kinds.items():
            spec = Spec(nodes=NODES, degree=4, features=6, classes=3, seed=1, edge_types=RELATIONS, **options)
            generate_graph("planted", paths[name], spec)
            for method in ("metis", "random-clusters"):
                partition_graph(paths[name], [1, 2, 3, 4], method=method, num_clusters=24)
    comm.barrier()
    return paths


def whole_graph(path):
    """(edges (src, dst, weight, type) with a loop of weight 1 and type R at each node without one, features, labels,
    training mask, node types), by original ids.
    """
    with GraphFile(path) as file:
        ids = file.read("nodes/original_id")
        back = np.argsort(ids)
        dst = ids[np.repeat(np.arange(NODES), np.diff(file.read("topology/indptr")))]
        src = ids[file.read("topology/indices")]
        weight = file.read("edges/weight").astype(float) if file.meta.weighted else np.ones(len(src))
        kinds = file.read("edges/type").astype(np.int64)
        x, y, split = (file.read(f"nodes/{name}")[back] for name in ("features", "labels", "split"))
        nodes = file.read("nodes/type")[back] if file.meta.num_node_types else np.zeros(NODES, int)
    lonely = np.setdiff1d(np.arange(NODES), src[src == dst])
    edges = tuple(
        np.concatenate(pair)
        for pair in (
            (src, lonely),
            (dst, lonely),
            (weight, np.ones(len(lonely))),
            (kinds, np.full(len(lonely), RELATIONS)),
        )
    )
    return (
        edges,
        torch.from_numpy(x).double(),
        torch.from_numpy(y.astype(np.int64)),
        torch.from_numpy(split == 1),
        nodes,
    )


def right(edges, x, p, nodes):
    """Logits by the formula, with dense matrices for each relation."""
    src, dst, weight, kinds = edges
    h = x
    if "before.weights" in p:
        h = torch.relu(
            torch.stack([h[i] @ p["before.weights"][k] for i, k in enumerate(nodes)]) + p["before.bias"][nodes]
        )
    for layer in range(2):
        y = h @ p[f"convs.{layer}.own.weight"] + p[f"convs.{layer}.own.bias"]
        assert len(p[f"convs.{layer}.coefficients"]) == RELATIONS + 1
        for relation, shares in enumerate(p[f"convs.{layer}.coefficients"]):
            of = kinds == relation
            matrix = torch.einsum("b,bij->ij", shares, p[f"convs.{layer}.bases"])
            mean = oracle.operator(oracle.adjacency(NODES, src[of], dst[of], weight[of]), "mean")
            y = y + torch.from_numpy(mean) @ h @ matrix
        h = torch.relu(y) if layer == 0 else y
    return h


@pytest.mark.parametrize("name", ["undirected", "directed"])
@pytest.mark.parametrize("map_name", ["metis", "random-clusters"])
def test_the_model_is_that_of_the_formula(comm, files, name, map_name):
    config = configure(
        files[name], model="rgcn", self_loops="add", layers=2, hidden=5, bases=2, dropout=0.0, precision="fp64", lr=0.0
    )
    trainer = build_trainer(comm, config, map_name, rows=20)
    assert trainer.model.spec.loop_relation
    with torch.no_grad():
        for number, p in enumerate(trainer.model.parameters()):
            p.add_(0.3 * torch.randn(p.shape, generator=torch.Generator().manual_seed(number), dtype=p.dtype))
    edges, x, labels, split, nodes = whole_graph(files[name])
    parameters = {key: value.detach().clone().requires_grad_() for key, value in trainer.model.named_parameters()}
    logits = right(edges, x, parameters, nodes)
    loss = oracle.loss(logits, labels, split & (labels >= 0))
    loss.backward()
    assert trainer.step(0) == pytest.approx(loss.item(), abs=1e-9)
    for key, parameter in trainer.model.named_parameters():
        torch.testing.assert_close(parameter.grad, parameters[key].grad, rtol=0, atol=1e-9)
    with torch.no_grad():
        found = trainer.model(trainer.graph)
    local = SimpleNamespace(original_id=trainer.graph.ids, num_nodes=NODES)
    np.testing.assert_allclose(whole(comm, local, found), logits.detach(), rtol=0, atol=1e-9)
