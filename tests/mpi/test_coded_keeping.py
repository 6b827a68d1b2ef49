"""`--keep int8`: gradients right in the mean, the same draws on any number of ranks, and the bytes that are kept."""

import numpy as np
import pytest
import torch

from hpcgnn.errors import ConfigError
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.offload.activations import toy_of
from hpcgnn.plan.run_plan import plan
from hpcgnn.plugins.coded_keeping import CodedKeeping

from .training import build_trainer, configure, make_graphs

DRAWS = 40
CASES = {
    "sage": {"model": "sage", "dropout": 0.4, "layers": 4},
    "gcn, pruned": {"model": "gcn", "prune": "auto", "dropout": 0.2, "layers": 4},
    "gcn, batch norm": {"model": "gcn", "norm": "batch", "residual": True},
    "gin": {"model": "gin", "dropout": 0.3},
    "gin, layer norm": {"model": "gin", "norm": "layer", "jumping": "cat"},
    "gat": {"model": "gat", "heads": 2, "dropout": 0.3, "attention_dropout": 0.2},
    "gat, averaged": {"model": "gat", "heads": 2, "out_heads": 2, "norm": "layer"},
}


@pytest.fixture(scope="module")
def graph(comm, session_path):
    return make_graphs(comm, session_path)["undirected"]


def gradient(trainer, epoch: int) -> tuple[float, torch.Tensor]:
    """(this rank's loss, the summed gradient) of a step that moves nothing."""
    trainer.random.epoch = epoch
    trainer.gradients.zero()
    trainer.schedule.halo.begin_epoch(epoch)
    with trainer.plugins.forward():
        loss = trainer.objective.local_loss(trainer.model(trainer.training_graph))
    loss.backward()
    trainer.schedule.sync.reduce(trainer.gradients.flat)
    return float(loss.detach()), trainer.gradients.flat.double().clone()


def build(comm, graph, name, keep):
    return build_trainer(comm, configure(graph, keep=keep, **CASES[name]), "metis")


@pytest.mark.parametrize("name", CASES)
def test_right_in_the_mean(comm, graph, name):
    """The forward pass is exact. Gradients differ from exact ones by little, and in the mean by nothing but chance."""
    exact, coded = (build(comm, graph, name, keep) for keep in ("exact", "int8"))
    errors, sizes = [], []
    for epoch in range(DRAWS):
        (loss, wanted), (same, found) = gradient(exact, epoch), gradient(coded, epoch)
        assert loss == same
        errors.append(found - wanted)
        sizes.append(wanted.norm())
    errors, size = torch.stack(errors), torch.stack(sizes).mean()
    assert 0 < errors.norm(dim=1).max() < 0.02 * size
    deviation = errors.std(0) / DRAWS**0.5
    assert (errors.mean(0).abs() <= 6 * deviation + 1e-6 * size).all()


@pytest.mark.parametrize("name", ["sage", "gcn, pruned", "gin", "gat"])
def test_the_same_draws_on_any_number_of_ranks(comm, graph, name):
    """In fp64 rounding of sums moves no number across a level: one rank alone has the same gradient."""
    options = {"precision": "fp64", "prune": "none"}
    case = {**CASES[name], **options, "keep": "int8"}
    config = configure(graph, **case)
    (_, ours), (_, alone) = (gradient(build_trainer(comm, config, place), 3) for place in ("metis", None))
    (_, exact) = gradient(build_trainer(comm, config.replace(keep="exact"), "metis"), 3)
    assert (ours - alone).abs().max() < 1e-9 * alone.abs().max() < (ours - exact).abs().max()


def test_bytes(graph):
    """A layer keeps a byte for each number of its input, and 4 for each block of a row; the last one keeps it whole."""
    kept = {}
    with GraphFile(graph) as file:
        for keep, layers in (("exact", 3), ("remade", 3), ("int8", 3), ("int8", 5)):
            config = configure(graph, model="sage", keep=keep, hidden=300, layers=layers)
            kept[keep, layers] = toy_of(plan(config, file.meta, 1)).per_node
    whole, coded = 4 * 300, 300 + 8
    assert list(kept.values()) == [2 * whole, whole, whole, 3 * coded + whole]


def test_taken_memory(comm, session_path):
    """Peak of the arena in a step, where a deep model keeps most."""
    graph = make_graphs(comm, session_path, nodes=20_000)["undirected"]
    peaks = []
    for keep in ("exact", "int8"):
        trainer = build_trainer(comm, configure(graph, model="sage", layers=10, hidden=128, keep=keep), "metis")
        trainer.step(0)
        trainer.buffers.arena.mark()
        trainer.step(1)
        peaks.append(trainer.buffers.arena.most)
    kept = trainer.local.num_owned * 128
    # Nine inputs, eight of them coded. Beside the codes stand two whole matrices.
    assert peaks[0] >= 9 * 4 * kept
    assert peaks[0] - peaks[1] >= (8 * (4 - 33 / 32) - 4 - 1.5) * kept


def test_refusals(comm, graph):
    for options in (
        {"model": "pna"},
        {"model": "sage", "aggregator": "max"},
        {"model": "sage", "precision": "mixed"},
        {"model": "gcn", "jumping": "max"},
        {"model": "gcn", "schedule": "lazy"},
        {"model": "gcn", "intra_node": "shared"},
    ):
        with pytest.raises(ConfigError, match="--keep (int8|exact)"):
            build_trainer(comm, configure(graph, keep="int8", **options), "metis")
    trainer = build_trainer(comm, configure(graph, model="sage"), "metis")
    assert trainer.plugins.find(CodedKeeping) is None and np.isfinite(trainer.step(0))
