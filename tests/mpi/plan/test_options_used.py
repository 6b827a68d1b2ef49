"""The registry describes models truly: an option that it names changes the curve, and others change no bit of it.

Weights of edges are read or not, as it states.
"""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from hpcgnn.comm import SoloCommunicator
from hpcgnn.nn.registry import MODELS

from ..edge_rows import GRAPHS, rows_of, save, types_of
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


@pytest.fixture(scope="module")
def paths(comm, session_path):
    """{(whether it has weights, whether features of edges): graph file}, with types of edges and the same edges."""
    found, graph = {}, GRAPHS["random undirected weighted"]
    weight = (1 + (graph.src + graph.dst) % 5).astype(np.float32)  # the same of parallel edges, in whatever order
    for weighted, featured in itertools.product((True, False), repeat=2):
        path = session_path / f"used-{weighted}-{featured}.h5"
        rows = {"edge_features": rows_of(graph)} if featured else {}
        of_kind = replace(graph, weight=weight if weighted else None)
        found[weighted, featured] = save(comm, path, of_kind, edge_type=types_of(graph), **rows)
    return found


def losses(path, **options):
    config = configure(path, **{"hidden": 4, "heads": 2, "lr": 0.05, "precision": "fp64", **options})
    trainer = build_trainer(SoloCommunicator(), config)
    return np.array([trainer.step(epoch) for epoch in range(2)])


@pytest.mark.parametrize("model", MODELS)
def test_options(paths, model):
    path = paths[True, model == "gine"]
    base = losses(path, model=model)
    for option, value in OTHER.items():
        changed = losses(path, model=model, **{option: value})
        if option not in MODELS[model].uses:
            assert (changed == base).all(), option
        elif option != "keep_input":  # which changes the order of sums at most
            assert (changed != base).any(), option


@pytest.mark.parametrize("model", MODELS)
def test_weights(paths, model):
    weighted, plain = (paths[each, model == "gine"] for each in (True, False))
    trainer = build_trainer(SoloCommunicator(), configure(weighted, model=model))
    same = (losses(weighted, model=model) == losses(plain, model=model)).all()
    assert MODELS[model].reads_weights(trainer.model.spec) == (not same)


@pytest.mark.parametrize("model", ["gcn", "gat", "gatv2", "transformer", "pna"])
def test_edge_features(paths, model):
    trainer = build_trainer(SoloCommunicator(), configure(paths[True, True], model=model))
    without = losses(paths[True, False], model=model)
    assert (losses(paths[True, True], model=model, edge_features="none") == without).all()
    assert (losses(paths[True, True], model=model) == without).all() != (trainer.model.spec.edge_features > 0)
