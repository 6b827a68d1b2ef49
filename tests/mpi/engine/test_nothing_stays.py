"""Nothing of a step outlives it but the parts that the next steps use.

No tensor is held by the graph of its gradients, which Python's collector cannot see.
"""

import pytest

from hpcgnn.nn.registry import MODELS
from hpcgnn.plugins.memory_use import LiveTensors

from ..training import build_trainer, configure, generated

pytestmark = pytest.mark.ranks(2)

FEW = 2  # what epochs are made of by then is all there
OTHERS = {
    "batch norm": {"model": "sage", "norm": "batch"},
    "jumping": {"model": "gcn", "jumping": "max", "residual": True, "norm": "layer"},
    "mixed": {"model": "gcn", "precision": "mixed"},
    "inductive": {"model": "gat", "inductive": True},
    "raw": {"model": "sage", "input_dropout": "raw"},
    "bns": {"model": "gat", "schedule": "bns", "boundary_rate": 0.5},
    "lazy": {"model": "gat", "schedule": "lazy", "layer_epochs": "5,5"},
    "tma": {"model": "gcn", "schedule": "tma", "average_steps": 2},
}
PLAIN = [model for model in MODELS if model != "gine" and "positions" not in MODELS[model].traits().edges]
CASES = {model: {"model": model} for model in PLAIN} | OTHERS


@pytest.fixture(scope="module")
def path(comm, session_path):
    """A graph with weights and types of edges."""
    return generated(comm, session_path / "stays.h5", 32, features=8, weighted=True, edge_types=3, seed=0)


@pytest.mark.parametrize("case", CASES)
def test_no_tensor_stays(comm, path, case):
    options = {"layers": 2, "hidden": 8, "heads": 2, "dropout": 0.3, "epochs": 10, **CASES[case]}
    trainer = build_trainer(comm, configure(path, **options), "metis")
    with LiveTensors() as live:
        alive = []
        for epoch in range(FEW + 3):
            trainer.step(epoch)
            trainer.evaluate()
            live.begin(afresh=False)
            alive.append(live.height)
    # Some draw how many rows they take. What stays of every step would be a fourth of all, and more.
    assert max(alive[FEW:]) < 1.1 * alive[FEW]
