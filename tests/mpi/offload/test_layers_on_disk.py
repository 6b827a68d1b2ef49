"""Layers with some columns of their matrices in memory, and the rest in a scratch file: the same bits."""

from functools import partial

import pytest
import torch

from hpcgnn.errors import ConfigError, RemoteError
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.memory.columns import Disk
from hpcgnn.memory.scratch import Scratch
from hpcgnn.nn.registry import MODELS
from hpcgnn.offload.activations import AT_WORK, Within, _needs, hold_within, toy_of
from hpcgnn.offload.columns import LEAST
from hpcgnn.offload.limits import Limit
from hpcgnn.ops.row_tiles import tiles_of
from hpcgnn.plan.run_plan import plan
from partition_tools.cli.generate_graph import generate_graph
from partition_tools.cli.partition_graph import partition_graph
from partition_tools.generators.spec import Spec

from ..small import MAPS, small_graphs
from ..training import build_trainer, configure, make_graphs

CASES = {
    "sage": {"model": "sage", "dropout": 0.4},
    "sage, four layers, pruned, tiny buffer": {"layers": 4, "prune": "auto", "halo_buffer": 0.01, "dropout": 0.3},
    "sage, as many classes": {"model": "sage", "hidden": 5},
    "sage, as many classes, pruned": {"model": "sage", "prune": "auto", "hidden": 5},
    "gcn": {"model": "gcn", "layers": 4, "dropout": 0.4},
    "gcn, fewest rows, pruned": {"model": "gcn", "halo": "least", "prune": "auto"},
}


@pytest.fixture(scope="module")
def graphs(comm, session_path):
    return make_graphs(comm, session_path, nodes=5_000, train=0.1) | small_graphs(comm, session_path)


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


@pytest.mark.ranks(2)
def test_within_a_limit(comm, session_path, job_session, tmp_path, monkeypatch):
    """A limit for which a layer at work is too large: some columns are in memory, within it, and the bytes that move
    are foretold. A smaller one is refused, with the least that works.
    """
    block = 1 << 16
    monkeypatch.setattr(Disk, "block", block)
    monkeypatch.setattr("hpcgnn.offload.activations.Disk", partial(Disk, block=block))
    monkeypatch.setattr("hpcgnn.offload.activations.resident_bytes", lambda: 1 << 20)
    graph = session_path / "large-enough.h5"
    if comm.rank == 0:
        generate_graph("planted", graph, Spec(nodes=15_000 * comm.size, features=8, classes=4, degree=4, seed=3))
        partition_graph(graph, [comm.size], num_clusters=16)
    comm.barrier()
    config = configure(graph, model="sage", layers=4, hidden=80, scratch=str(tmp_path))
    with tiles_of(512):
        free = build_trainer(comm, config, "metis")
        losses = [free.step(step) for step in range(2)]
        trainer = build_trainer(comm, config, "metis")
        toy, rows = toy_of(trainer.plan), trainer.local.num_owned
        lasting, at_work = _needs(trainer, toy, config, Limit(0, 0, comm.size, ""))
        beside = at_work - AT_WORK * toy.largest * rows
        least, some = (lasting + beside + toy.disk.at_work(rows, k, comm.size) for k in (LEAST, 48))
        assert some < lasting + at_work
        least, some = (sum(comm.allgather_object(each)) for each in (least, some))
        with pytest.raises((ConfigError, RemoteError), match=f"at least {least / 2**30 + 0.01:.2f}G"):
            hold_within(trainer, toy, config, job_session, Limit(least - 1, 0, comm.size, "1G"))
        assert trainer.buffers.arena.disk is None
        hold_within(trainer, toy, config, job_session, Limit(some, 0, comm.size, "1G"))
        disk = trainer.buffers.arena.disk
        assert LEAST <= disk.columns <= 48
        assert [trainer.step(step) for step in range(2)] == losses
    assert trainer.buffers.arena.nbytes <= trainer.plugins.find(Within).keeper.budget
    assert disk.scratch.nbytes <= 1.05 * toy.disk.file_bytes(rows)
    for found, foretold in zip((disk.scratch.written, disk.scratch.read), toy.disk.moved(rows, disk.columns)):
        assert 2 * foretold <= found <= 2.4 * foretold, "two epochs, and blocks that were read ahead in vain"


@pytest.mark.ranks(1)
@pytest.mark.parametrize("model", [name for name in MODELS if name not in ("rgcn", "rgat", "gine", "sign")])
def test_every_model_says_whether_it_can(graphs, model):
    """Those that read types or features of edges, or hops, need another graph."""
    with GraphFile(graphs["undirected"]) as file:
        found = toy_of(plan(configure(graphs["undirected"], model=model), file.meta, 1).deciding(False))
    assert (found.disk is not None) == (model in ("gcn", "sage"))
