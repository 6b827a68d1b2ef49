"""Every kind of step once with all tensors in the arena, where large ones live: small graphs would never get there."""

import numpy as np
import pytest

import hpcgnn.memory.arena as arena

from ..training import build_trainer, configure

pytestmark = pytest.mark.ranks(2)

CASES = {
    "gcn, residual": {"model": "gcn", "residual": True},
    "sage, batch norm, dropout": {"model": "sage", "norm": "batch", "dropout": 0.3},
    "gin": {"model": "gin"},
    "sgc": {"model": "sgc", "layers": 2},
    "sgc, raw": {"model": "sgc", "layers": 2, "input_dropout": "raw", "keep_input": "never"},
    "gcn, wider at the end": {"model": "gcn", "hidden": 4},
    "gat": {"model": "gat", "heads": 2, "hidden": 4, "dropout": 0.3, "attention_dropout": 0.2},
    "gat, residual": {"model": "gat", "heads": 2, "hidden": 4, "residual": True, "layers": 4},
    "pna": {"model": "pna"},
    "lazy": {"model": "gcn", "schedule": "lazy", "epochs": 2},
    "lazy, residual": {"model": "sage", "schedule": "lazy", "epochs": 2, "residual": True},
    "bns, int8": {"model": "gcn", "schedule": "bns", "halo_dtype": "int8", "boundary_rate": 0.5},
    "tma": {"model": "sage", "schedule": "tma", "average_steps": 2, "correct_every": 1},
}


@pytest.mark.parametrize("name", CASES)
def test_the_arena_changes_nothing(comm, graph, name, monkeypatch):
    def losses():
        config = configure(graph, precision="fp64", **{"epochs": 4, **CASES[name]})
        trainer = build_trainer(comm, config, "metis")
        found = [trainer.step(epoch) for epoch in range(2)]
        taken = trainer.buffers.arena.nbytes  # a constant of the evaluation gives free memory back
        return [*found, *trainer.evaluate().values()], taken

    expected, none = losses()
    monkeypatch.setattr(arena, "SMALL", 0)
    found, used = losses()
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=0)
    assert used > 0 == none
