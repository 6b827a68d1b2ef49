"""Numbers that are not finite in training alone: the diagnosis computes the very step that failed."""

import pytest
import torch

from hpcgnn.errors import TrainingError

from ..training import build_trainer, configure

pytestmark = pytest.mark.ranks(2, 3)

SCHEDULES = {
    "sar": {"halo_dtype": "int8"},
    "lazy": {},
    "bns": {},
    "tma": {"average_steps": 2},
}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_layer_and_the_rank_are_named(comm, graph, schedule):
    config = configure(graph, schedule=schedule, model="sage", norm="layer", **SCHEDULES[schedule])
    trainer = build_trainer(comm, config, "metis")
    if comm.rank == comm.size - 1:
        trainer.model.norms[0].register_forward_hook(
            lambda module, given, y: y * torch.inf if torch.is_grad_enabled() else None
        )
    with pytest.raises(TrainingError, match=rf"layer norms\.0 \(LayerNorm\), on rank {comm.size - 1};"):
        trainer.step(0)
