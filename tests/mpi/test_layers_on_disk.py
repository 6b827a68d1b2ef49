"""Layers with some columns of their matrices in memory, and the rest in a scratch file: the same bits."""

import pytest
import torch

from hpcgnn.memory.columns import Disk
from hpcgnn.memory.scratch import Scratch
from hpcgnn.ops.row_tiles import tiles_of

from . import small
from .training import build_trainer, configure, make_graphs

CASES = {
    "sage": {"model": "sage", "dropout": 0.4},
    "sage, four layers, pruned, tiny buffer": {"layers": 4, "prune": "auto", "halo_buffer": 0.01, "dropout": 0.3},
    "sage, as many classes": {"model": "sage", "hidden": 5},
    "sage, as many classes, pruned": {"model": "sage", "prune": "auto", "hidden": 5},
    "gcn": {"model": "gcn", "layers": 4, "dropout": 0.4},
    "gcn, fewest rows, pruned": {"model": "gcn", "halo": "least", "prune": "auto"},
}
MAPS = {"undirected": "metis", "directed multi-label": "random-clusters", "star": "all on last", "random": "one empty"}


@pytest.fixture(scope="module")
def graphs(comm, session_path):
    found = make_graphs(comm, session_path, nodes=5_000, train=0.1)
    for kind, name in (("star", "star"), ("random", "random directed weighted")):
        found[kind] = small.stored(comm, session_path, name)[2]
    return found


def trained(comm, config, map_name, folder, columns):
    """(losses, metrics, parameters, its scratch file) after two steps. columns: in memory at a time, None for all."""
    trainer = build_trainer(comm, config, map_name)
    arena = trainer.buffers.arena
    if columns is not None:
        arena.disk = Disk(Scratch(str(folder)), arena, columns, 4096)
    losses = [trainer.step(step) for step in range(2)]
    found = trainer.evaluate()
    return losses, repr(found), [p.detach().clone() for p in trainer.model.parameters()], arena.disk


@pytest.mark.ranks(1, 2, 3, 4)
@pytest.mark.parametrize(
    "name, kind", [(name, kind) for name in CASES for kind in MAPS if name in ("sage", "gcn") or kind == "undirected"]
)
def test_the_same_bits(comm, graphs, tmp_path, name, kind):
    """Loss, evaluation and parameters, for several blocks of rows and groups of columns, and for one group."""
    config = configure(graphs[kind], **{"model": "sage", "hidden": 40, "keep_input": "always", **CASES[name]})
    with tiles_of(512):
        losses, metrics, parameters, _ = trained(comm, config, MAPS[kind], tmp_path, None)
        for columns in (16, 40):
            again, found, others, disk = trained(comm, config, MAPS[kind], tmp_path, columns)
            assert again == losses and found == metrics
            assert all(torch.equal(a, b) for a, b in zip(parameters, others, strict=True))
            assert disk.scratch.written > 0 or comm.size > 1, "nothing went to the disk, and so nothing was tested"
