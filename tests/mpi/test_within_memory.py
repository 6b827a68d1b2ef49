"""Training in less memory than it takes: the same bits, whatever goes to the scratch file meanwhile."""

import gc
import weakref

import pytest
import torch

from hpcgnn.errors import ConfigError
from hpcgnn.memory import arena, keeping
from hpcgnn.options.memory_size import said_memory
from hpcgnn.train.toy import toy_step
from hpcgnn.train.within_memory import READ, WRITTEN, Within, check_memory, toy_of

from .training import build_trainer, configure, make_graphs

STEPS = 3
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
        trainer.within = Within(trainer, budget, str(folder), 0)
    losses = []
    for stage in range(len(trainer.plan)):
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
        keeper = trainer.within.keeper
        assert again == losses and repr(found) == repr(metrics)  # NaN is not equal to itself
        assert all(torch.equal(a, b) for a, b in zip(parameters, others))
        if budget == 0 and trainer.local.num_owned:
            assert keeper.scratch.written > 0, "there was nothing to keep, and so nothing was tested"
        keeper.begin()
        assert keeper.away == 0 and keeper.outside == 0, "a step is done: nothing is kept"
        assert not keeper._flights
        assert list(tmp_path.iterdir()) == [], "scratch files have no names"
        trainer.within.book()
        ledger = trainer.comm.ledger.take()
        booked = [ledger[kind].bytes_sent if kind in ledger else 0 for kind in (WRITTEN, READ)]
        assert booked == [keeper.scratch.written, keeper.scratch.read]


def test_what_is_over_goes_and_no_more(comm, session_path, tmp_path, all_are_large):
    """In every step about as many bytes go as the first had too many, and a tensor more. How many exactly depends on
    the disk: what was not written in time is waited for, and another one may be written for it.
    """
    config = configure(make_graphs(comm, session_path)["undirected"], model="sage", layers=8, hidden=32)
    free = trained(comm, config, None, tmp_path)[-1]
    matrix = free.local.num_owned * 32 * 4
    rounded = -(-matrix // 4096) * 4096
    budget = free.buffers.arena.nbytes - 2 * rounded
    trainer = trained(comm, config, budget, tmp_path)[-1]
    keeper = trainer.within.keeper
    for step in range(STEPS, STEPS + 3):
        before = keeper.scratch.written
        trainer.step(step)
        assert 2 * rounded <= keeper.scratch.written - before <= 5 * rounded
        assert trainer.buffers.arena.nbytes <= budget


def test_a_toy_foretells_what_is_kept(comm, session_path):
    """A hidden layer of sage keeps its input alone."""
    config = configure(make_graphs(comm, session_path)["undirected"], model="sage", layers=5, hidden=32)
    trainer = build_trainer(comm, config, "metis")
    toy = toy_of(trainer.model.spec, config, trainer.local.task)
    assert (toy.per_node, toy.largest) == (4 * 32 * 4, 32 * 4)
    assert toy.in_tiles and toy.reads_input


@pytest.mark.parametrize("model", ["gcn", "sage", "gat"])
def test_nothing_of_a_toy_stays(comm, session_path, monkeypatch, model):
    """Its tensors were kept for the whole run: by the graph of their gradients, which is out of sight of the
    collector.
    """
    config = configure(make_graphs(comm, session_path)["undirected"], model=model, layers=3)
    trainer, found = build_trainer(comm, config, "metis"), []

    def step(*arguments):
        *others, prepare = arguments

        def also(toy):
            prepare(toy)
            found.extend(weakref.ref(each) for each in (toy, toy.model, toy.buffers.arena.keeper))

        return toy_step(*others, also)

    monkeypatch.setattr("hpcgnn.train.within_memory.toy_step", step)
    toy_of(trainer.model.spec, config, trainer.local.task)
    gc.collect()
    assert [each() for each in found] == [None] * 3


def test_sizes():
    assert said_memory("48G") == 48 << 30 and said_memory("1.5 TiB") == 3 << 39 and said_memory("800m") == 800 << 20
    assert said_memory("auto") is said_memory("none") is said_memory("") is None
    for text in ("48", "G", "-1G", "0G", "1e3M", "4X"):
        with pytest.raises(ConfigError, match="expected a size such as 48G"):
            said_memory(text)


def test_refused_schedules(session_path):
    for schedule in ("stale", "bns"):
        with pytest.raises(ConfigError, match="--memory is for --schedule sar and lazy"):
            check_memory(configure("none", schedule=schedule, memory="1G"))
