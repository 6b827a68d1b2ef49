"""Training in less memory than it takes: the same bits, whatever goes to the scratch file meanwhile."""

from threading import get_ident
from types import SimpleNamespace

import pytest
import torch
from mpi.training import build_trainer, configure, make_graphs, plugin_of

from hpcgnn.engine.probe import StepProbe
from hpcgnn.errors import ConfigError, RemoteError
from hpcgnn.extras.offload import keeping
from hpcgnn.extras.offload.activations import ActivationOffloader, hold_within, needs
from hpcgnn.extras.offload.limits import Limit
from hpcgnn.extras.offload.options import READ, WRITTEN
from hpcgnn.extras.offload.policy import WithinLimit
from hpcgnn.memory import arena
from hpcgnn.plugins.registry import make_plugins

pytestmark = pytest.mark.ranks(2)

STEPS = 3
#: {thread of a rank: bytes}.
RESIDENT = {}
CASES = {
    "gcn": {"model": "gcn", "layers": 4},
    "sage": {"model": "sage", "layers": 4, "dropout": 0.5},
    "sage, batch norm": {"model": "sage", "norm": "batch", "layers": 4},
    "sage, residual": {"model": "sage", "layers": 4, "residual": True, "norm": "layer"},
    "sage, mixed": {"model": "sage", "precision": "mixed", "layers": 4},
    "gin": {"model": "gin", "layers": 4},
    "gat": {"model": "gat", "heads": 2, "layers": 4, "dropout": 0.5},
    "gat, norm": {"model": "gat", "heads": 2, "norm": "layer"},
    "gat, batch norm": {"model": "gat", "heads": 2, "norm": "batch"},
    "transformer": {"model": "transformer", "heads": 2},
    "pruned": {"model": "gcn", "layers": 4, "prune": "auto"},
    "links": {"model": "sage", "layers": 4, "task": "links", "scorer": "mlp"},
    "lazy": {"model": "gcn", "schedule": "lazy", "epochs": 2},
}


@pytest.fixture
def all_are_large(monkeypatch):
    """Tensors of a small graph count as large."""
    monkeypatch.setattr(arena, "SMALL", 4096)
    monkeypatch.setattr(keeping, "SMALL", 4096)


def trained(comm, config, budget, folder):
    """(losses, metrics, parameters, the Trainer) after some steps within a budget (None: no limit)."""
    trainer = build_trainer(comm, config, "metis")
    if budget is not None:
        trainer.plugins.append(ActivationOffloader(trainer, budget, str(folder), 0))
    losses = []
    for stage in range(len(trainer.stages)):
        trainer.begin_stage(stage, STEPS * stage)
        losses += [trainer.step(STEPS * stage + step) for step in range(STEPS)]
    found = trainer.evaluate()
    return losses, found, [p.detach().clone() for p in trainer.model.parameters()], trainer


@pytest.mark.parametrize("name", CASES)
def test_the_same_bits(comm, session_path, tmp_path, all_are_large, name):
    config = configure(make_graphs(comm, session_path)["undirected"], **CASES[name])
    losses, metrics, parameters, free = trained(comm, config, None, tmp_path)
    for budget in (0, free.buffers.arena.nbytes // 2):
        again, found, others, trainer = trained(comm, config, budget, tmp_path)
        keeper = plugin_of(trainer, ActivationOffloader).keeper
        assert again == losses and repr(found) == repr(metrics)  # NaN is not equal to itself
        assert all(torch.equal(a, b) for a, b in zip(parameters, others))
        if budget == 0 and trainer.local.num_owned:
            assert keeper.scratch.written > 0, "there was nothing to keep, and so nothing was tested"
        keeper.begin()
        assert keeper.away == 0 and keeper.outside == 0, "a step is done: nothing is kept"
        assert not keeper._flights
        assert list(tmp_path.iterdir()) == [], "scratch files have no names"
        plugin_of(trainer, ActivationOffloader).end_epoch()
        ledger = trainer.comm.ledger.take()
        booked = [ledger[kind].bytes_sent if kind in ledger else 0 for kind in (WRITTEN, READ)]
        assert booked == [keeper.scratch.written, keeper.scratch.read]


def test_what_fits_together_has_no_limit(comm, session_path, tmp_path, all_are_large, monkeypatch):
    """The last rank holds far more than its equal share of the node, and all ranks hold the available memory."""
    config = configure(make_graphs(comm, session_path)["undirected"], model="sage", scratch=str(tmp_path))
    trainer = build_trainer(comm, config, "metis")
    probe, held = StepProbe.of(trainer.plan, make_plugins), 1 << 20
    held = held << 10 if comm.rank == comm.size - 1 else held
    RESIDENT[get_ident()] = held
    monkeypatch.setattr("hpcgnn.extras.offload.activations.resident_bytes", lambda: RESIDENT[get_ident()])
    lasting, at_work = needs(trainer, probe, Limit(0, 0, comm.size, ""))
    kept = probe.kept(trainer.local.num_owned, trainer.local.inward.num_edges)
    least, all_of_it = (sum(comm.allgather_object(each)) for each in (lasting + at_work, lasting + at_work + kept))
    hold_within(trainer, probe, Limit(all_of_it, 0, comm.size, ""))
    assert plugin_of(trainer, ActivationOffloader) is None
    with pytest.raises(ConfigError if comm.rank == comm.size - 1 else RemoteError, match="at least") as refused:
        hold_within(trainer, probe, Limit(least - 1, 0, comm.size, "1G"))
    assert f"too little: rank {comm.size - 1} holds" in str(refused.value)
    session = SimpleNamespace(comm=comm)
    unasked = Limit(least - 1, 0, comm.size, "")  # nobody has asked for it
    WithinLimit(trainer.plan, session, trainer.buffers, probe, True, unasked).begin(trainer)
    assert plugin_of(trainer, ActivationOffloader) is None
    hold_within(trainer, probe, Limit(least + (all_of_it - least) // 2, 0, comm.size, "1G"))
    assert plugin_of(trainer, ActivationOffloader).keeper.budget >= at_work
    assert (
        sum(comm.allgather_object(plugin_of(trainer, ActivationOffloader).keeper.budget + lasting))
        <= least + (all_of_it - least) // 2
    )
