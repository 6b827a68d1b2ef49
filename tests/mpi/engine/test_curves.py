"""The learning curve does not depend on the number of ranks, on the map, or on the size of the buffers."""

import numpy as np
import pytest

from ..training import configure, curve, make_graphs

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
    ("undirected", "metis", 300),
    ("undirected", "random-clusters", 120),
    ("undirected", "random-clusters", 1 << 20),
    ("directed multi-label", "metis", 120),
    ("directed multi-label", "random-clusters", 300),
]


# One model in every layout, the others in one of each graph.
CURVES = [(kind, *where) for kind in MODELS for where in LAYOUTS if kind == "sage" or where in (LAYOUTS[1], LAYOUTS[4])]


@pytest.fixture(scope="module")
def paths(comm, session_path):
    return make_graphs(comm, session_path)


@pytest.fixture(scope="module")
def one_rank(comm):
    """The curve of one rank alone, computed on rank 0 while the others wait."""
    known = {}

    def curve_of_one(config):
        if config not in known:
            known[config] = comm.broadcast_object(curve(comm, config, None, None) if comm.rank == 0 else None)
        return known[config]

    return curve_of_one


@pytest.mark.parametrize("kind, name, map_name, rows", CURVES)
def test_single_precision_with_dropout(comm, paths, one_rank, kind, name, map_name, rows):
    config = configure(paths[name], model=kind, dropout=0.5, weight_decay=5e-4, **MODELS[kind])
    expected, found = one_rank(config), curve(comm, config, map_name, rows)
    assert expected[-1] < expected[0], "the model must learn, or the comparison says little"
    difference = np.abs(found - expected) / np.maximum(expected, expected[0] / 10)
    assert difference.max() <= 1e-4, f"epoch {difference.argmax()}"


@pytest.mark.smoke
def test_all_ranks_see_the_same_loss(comm, paths):
    found = curve(comm, configure(paths["undirected"]), "metis", 100, epochs=3)
    assert len(set(comm.allgather_object(found.tobytes()))) == 1
