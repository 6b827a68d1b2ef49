"""Numbers that are not finite on one rank end the run on all of them, and nothing moves."""

import pytest
import torch

from hpcgnn.errors import TrainingError

from ..training import build_trainer, configure

pytestmark = pytest.mark.ranks(2, 3)


@pytest.mark.parametrize("options", [{"schedule": "sar"}, {"schedule": "tma", "average_steps": 2}])
def test_the_loss_and_the_rank_are_named(comm, graph, options):
    trainer = build_trainer(comm, configure(graph, model="sage", norm="layer", **options), "metis")
    last = comm.size - 1
    if comm.rank == last:
        trainer.model.convs[-1].register_forward_hook(lambda module, given, y: y * torch.inf)
    with pytest.raises(TrainingError, match=rf"^the loss is not finite in epoch 1 on rank .*{last}; .*is kept$"):
        trainer.step(0)
