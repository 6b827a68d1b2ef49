"""The registry describes models truly: an option that it names changes the curve, and others change no bit of it.

Weights of edges are read or not, as it states.
"""

from dataclasses import replace

import numpy as np
import pytest

from hpcgnn.comm.communicator import SoloCommunicator
from hpcgnn.graphfile.storage import GraphFile, write_graph
from hpcgnn.nn.registry import MODELS
from partition_tools.cli.generate_graph import generate_graph
from partition_tools.generators.spec import Spec
from partition_tools.graph.loading import load_graph

from ..training import build_trainer, configure

pytestmark = pytest.mark.ranks(1)

OTHER = {
    "hidden": 6,
    "norm": "layer",
    "residual": True,
    "keep_input": "never",
    "heads": 3,
    "out_heads": 2,
    "attention_dropout": 0.5,
    "bases": 2,
    "linear_residual": True,
}
PLAIN = [model for model in MODELS if "positions" not in MODELS[model].traits().edges]


@pytest.fixture(scope="module")
def paths(comm, session_path):
    """{(whether it has weights, whether features of edges): graph file}, with types of edges and the same edges."""
    kinds = [(weighted, featured) for weighted in (True, False) for featured in (True, False)]
    found = {kind: session_path / "used-{}-{}.h5".format(*kind) for kind in kinds}
    if comm.rank == 0:
        for weighted in (True, False):
            spec = Spec(nodes=60, degree=6, features=8, classes=3, seed=1, weighted=weighted, edge_types=5)
            generate_graph("planted", found[weighted, False], spec)
            with GraphFile(found[weighted, False]) as file:
                rows = np.random.default_rng(1).standard_normal((file.meta.num_edges, 2)).astype(np.float32)
                write_graph(found[weighted, True], replace(load_graph(file), edge_features=rows))
    comm.barrier()
    return found


def losses(path, **options):
    config = configure(path, **{"hidden": 4, "heads": 2, "lr": 0.05, "precision": "fp64", **options})
    trainer = build_trainer(SoloCommunicator(), config)
    return np.array([trainer.step(epoch) for epoch in range(2)])


@pytest.mark.parametrize("model", PLAIN)
def test_options(paths, model):
    path = paths[True, model == "gine"]
    base = losses(path, model=model)
    for option, value in OTHER.items():
        changed = losses(path, model=model, **{option: value})
        if option not in MODELS[model].uses:
            assert (changed == base).all(), option
        elif option != "keep_input":  # which changes the order of sums at most
            assert (changed != base).any(), option


@pytest.mark.parametrize("model", PLAIN)
def test_weights(paths, model):
    weighted, plain = (paths[each, model == "gine"] for each in (True, False))
    trainer = build_trainer(SoloCommunicator(), configure(weighted, model=model))
    same = (losses(weighted, model=model) == losses(plain, model=model)).all()
    assert ("weights" in MODELS[model].traits(trainer.model.spec).edges) == (not same)


@pytest.mark.parametrize("model", ["gcn", "gat", "gatv2", "transformer", "pna"])
def test_edge_features(paths, model):
    trainer = build_trainer(SoloCommunicator(), configure(paths[True, True], model=model))
    without = losses(paths[True, False], model=model)
    assert (losses(paths[True, True], model=model, edge_features="none") == without).all()
    assert (losses(paths[True, True], model=model) == without).all() != (trainer.model.spec.edge_features > 0)
