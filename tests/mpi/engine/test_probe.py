"""A step on a small graph shows the bytes that a step keeps (memory/test_coded_keeping.py), and nothing of it stays."""

import gc
import weakref

import pytest

from hpcgnn.engine import probe
from hpcgnn.engine.probe import StepProbe
from hpcgnn.plugins.registry import make_plugins

from ..training import build_trainer, configure, make_graphs

pytestmark = pytest.mark.ranks(2)


@pytest.mark.parametrize("model", ["gcn", "sage", "gat"])
def test_nothing_stays(comm, session_path, monkeypatch, model):
    """Its tensors were kept for the whole run: by the graph of their gradients, which is out of sight of the
    collector.
    """
    config = configure(make_graphs(comm, session_path)["undirected"], model=model, layers=3)
    trainer, found, probe_step = build_trainer(comm, config, "metis"), [], probe.probe_step

    def step(*arguments):
        *others, prepare = arguments

        def also(small):
            prepare(small)
            found.extend(weakref.ref(each) for each in (small, small.model, small.buffers.arena.keeper))

        return probe_step(*others, also)

    monkeypatch.setattr(probe, "probe_step", step)
    StepProbe.of(trainer.plan, make_plugins)
    gc.collect()
    assert [each() for each in found] == [None] * 3
