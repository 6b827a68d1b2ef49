"""The learning curve does not depend on the number of ranks, the map or the buffers.

Neither does it depend on the way in which rows travel, nor on the choice of computed rows.
"""

import contextlib

import numpy as np
import pytest

from ..nodes import NODES, emulated
from ..training import build_trainer, configure, curve, few_train

MODELS = {
    "gcn": {},
    "sage": {"norm": "batch", "residual": True, "layers": 4},
    "gin": {"norm": "layer", "hidden": 12},
    "sgc": {"layers": 2},
    "gat": {"hidden": 4, "heads": 3, "out_heads": 2, "attention_dropout": 0.5, "lr": 0.005},
    "transformer": {"heads": 2, "attention_dropout": 0.4, "hidden": 4, "lr": 0.005},
    "pna": {"norm": "layer", "lr": 0.005},
}
# Rows of a buffer: pieces of one peer, a few peers at a time, everything at once.
LAYOUTS = [
    ("undirected", "metis", 100),
    ("undirected", "random-clusters", 40),
    ("undirected", "random-clusters", 1 << 20),
    ("directed multi-label", "metis", 40),
    ("directed multi-label", "random-clusters", 100),
]


# One model in every layout, the others in one of each graph.
CURVES = [(kind, *where) for kind in MODELS for where in LAYOUTS if kind == "sage" or where in (LAYOUTS[1], LAYOUTS[4])]
# The curve of one rank alone for each configuration; it is computed once for all numbers of ranks.
ALONE = {}


def curve_of_one(comm, name, config):
    key = name, config.replace(graph=name)  # the graph's file has another place for each number of ranks
    if comm.rank == 0 and key not in ALONE:
        ALONE[key] = curve(comm, config, None, None)
    return comm.broadcast_object(ALONE.get(key))


@pytest.mark.smoke
@pytest.mark.parametrize("kind, name, map_name, rows", CURVES)
def test_single_precision_with_dropout(comm, paths, kind, name, map_name, rows):
    config = configure(paths[name], model=kind, dropout=0.5, weight_decay=5e-4, **MODELS[kind])
    expected, found = curve_of_one(comm, name, config), curve(comm, config, map_name, rows)
    assert expected[-1] < expected[0], "the model must learn, or the comparison says little"
    difference = np.abs(found - expected) / np.maximum(expected, expected[0] / 10)
    assert difference.max() <= 1e-4, f"epoch {difference.argmax()}"


PRUNED, LEAST, IN_PLACE = {"prune": "auto"}, {"halo": "least"}, {"intra_node": "shared"}
SAGE = {"model": "sage", "norm": "batch", "residual": True}
# name: (graph, options, what is added and changes no loss)
WAYS = {
    "pruned gcn": ("few train", {}, PRUNED),
    "pruned sage": ("few train, directed", {"model": "sage", "norm": "layer"}, PRUNED),
    "pruned gin": ("few train", {"model": "gin", "residual": True}, PRUNED),
    "pruned gat": ("few train, directed", {"model": "gat", "heads": 2, "hidden": 8, "attention_dropout": 0.3}, PRUNED),
    "pruned, from the features": ("few train", {"model": "sage", "input_dropout": "raw", "hidden": 32}, PRUNED),
    "pruned sgc": ("few train", {"model": "sgc", "keep_input": "always"}, PRUNED),
    "fewest rows": ("directed multi-label", SAGE, LEAST),
    "fewest rows, pruned": ("few train", SAGE, PRUNED | LEAST),
    "fewest rows, lazy": ("undirected", {"schedule": "lazy", "epochs": 5}, LEAST),
    "in place, sage": ("directed multi-label", {**SAGE, "layers": 4}, IN_PLACE),
    "in place, gat": ("undirected", {"model": "gat", "hidden": 4, "heads": 3, "out_heads": 2}, IN_PLACE),
    "in place, lazy": ("undirected", {"model": "sage", "schedule": "lazy"}, IN_PLACE),
    "in place, pruned gat": ("few train, directed", {"model": "gat", "hidden": 4, "heads": 3}, PRUNED | IN_PLACE),
}


@pytest.mark.parametrize("way", WAYS)
def test_ways_that_change_no_curve(comm, paths, session_path, way):
    """In double precision; ranks that read in place are pairs on nodes. A share is made where pruning is asked for, and
    no other layer follows that needs all rows.
    """
    name, options, change = WAYS[way]
    in_place = "intra_node" in change
    if in_place and not hasattr(comm, "_node_memory"):
        pytest.skip("ranks share no memory over this transport")
    few = few_train(comm, session_path)
    path = {"few train": few["undirected"], "few train, directed": few["directed multi-label"], **paths}[name]
    config = configure(path, **{"precision": "fp64", "intra_node": "messages", **options})
    with emulated(comm, NODES["pairs"](comm.rank)) if in_place else contextlib.nullcontext():
        expected = curve(comm, config, "random-clusters", 30, epochs=3)
        trainer = build_trainer(comm, config.replace(**change), "random-clusters", 30)
        found = [trainer.step(epoch) for epoch in range(3)]
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert any(trainer.views.shares or [None]) == ("prune" in change and "max" not in way)
    assert (trainer.views.in_place is not None) == (in_place and comm.size > 1)
