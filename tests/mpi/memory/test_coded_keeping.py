"""`--keep int8`: gradients right in the mean, the same draws on any number of ranks, and the bytes that are kept."""

import pytest
import torch

from hpcgnn.engine.probe import StepProbe
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.plan.run_plan import plan
from hpcgnn.plugins.registry import make_plugins

from ..training import build_trainer, configure

DRAWS = 16
CASES = {
    "sage": {"model": "sage", "dropout": 0.4, "layers": 4},
    "gcn, pruned": {"model": "gcn", "prune": "auto", "dropout": 0.2, "layers": 4},
    "gcn, batch norm": {"model": "gcn", "norm": "batch", "residual": True},
    "gin": {"model": "gin", "dropout": 0.3},
    "gin, layer norm": {"model": "gin", "norm": "layer", "jumping": "cat"},
    "gat": {"model": "gat", "heads": 2, "dropout": 0.3, "attention_dropout": 0.2},
    "gatv2": {"model": "gatv2", "heads": 2, "dropout": 0.3, "attention_dropout": 0.2},
    "transformer": {"model": "transformer", "heads": 2, "norm": "layer"},
    "gat, averaged": {"model": "gat", "heads": 2, "out_heads": 2, "norm": "layer"},
}
# Its LeakyReLU is of sums of two rounded rows, and rounding moves some across 0.
LARGEST = {"gatv2": 0.1}


def gradient(trainer, epoch: int) -> tuple[float, torch.Tensor]:
    """(this rank's loss, the summed gradient) of a step that moves nothing."""
    trainer.random.epoch = epoch
    trainer.gradients.zero()
    trainer.schedule.halo.begin_epoch(epoch)
    with trainer.plugins.around(lambda each: each.forward()):
        loss = trainer.objective.local_loss(trainer.model(trainer.training_graph))
    loss.backward()
    trainer.schedule.sync.reduce(trainer.gradients.flat)
    return float(loss.detach()), trainer.gradients.flat.double().clone()


@pytest.mark.ranks(2)
@pytest.mark.parametrize("name", CASES)
def test_right_in_the_mean(comm, graph, name):
    """The forward pass is exact. Gradients differ from exact ones by little, and in the mean by nothing but chance."""
    configs = [configure(graph, keep=keep, **CASES[name]) for keep in ("exact", "int8")]
    exact, coded = (build_trainer(comm, config, "metis") for config in configs)
    errors, sizes = [], []
    for epoch in range(DRAWS):
        (loss, wanted), (same, found) = gradient(exact, epoch), gradient(coded, epoch)
        assert loss == same
        errors.append(found - wanted)
        sizes.append(wanted.norm())
    errors, size = torch.stack(errors), torch.stack(sizes).mean()
    assert 0 < errors.norm(dim=1).max() < LARGEST.get(name, 0.02) * size
    by_chance = (errors.var(0).sum() / DRAWS).sqrt()
    assert errors.mean(0).norm() < 1.5 * by_chance


@pytest.mark.parametrize("name", ["sage", "gcn, pruned", "gin", "gat", "gatv2"])
def test_the_same_draws_on_any_number_of_ranks(comm, graph, name):
    """In fp64 rounding of sums moves no number across a level: one rank alone has the same gradient."""
    options = {"precision": "fp64", "prune": "none"}
    case = {**CASES[name], **options, "keep": "int8"}
    config = configure(graph, **case)
    (_, ours), (_, alone) = (gradient(build_trainer(comm, config, place), 3) for place in ("metis", None))
    (_, exact) = gradient(build_trainer(comm, config.replace(keep="exact"), "metis"), 3)
    assert (ours - alone).abs().max() < 1e-9 * alone.abs().max() < (ours - exact).abs().max()


@pytest.mark.ranks(2)
def test_bytes(graph):
    """A layer keeps a byte for each number of its input, and 4 for each block of a row; the last one keeps it whole."""
    kept = {}
    with GraphFile(graph) as file:
        for keep, layers in (("exact", 3), ("int8", 2), ("int8", 3), ("int8", 5)):
            config = configure(graph, model="sage", keep=keep, hidden=300, layers=layers)
            kept[keep, layers] = StepProbe.of(plan(config, file.meta), make_plugins).kept(1, 0)
    whole, coded = 4 * 300, 300 + 8
    assert list(kept.values()) == [2 * whole, whole, coded + whole, 3 * coded + whole]
