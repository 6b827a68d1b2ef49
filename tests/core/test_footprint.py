"""The account of memory: what layers are said to make, keep and free is what torch's allocator sees, tensor by tensor."""

import gc
import itertools

import numpy as np
import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from hpcgnn.__main__ import registry_choices
from hpcgnn.comm import SoloCommunicator
from hpcgnn.config import make_config
from hpcgnn.graph.buffers import HaloBuffers
from hpcgnn.nn.footprint import footprint
from hpcgnn.nn.registry import complete
from hpcgnn.nn.spec import ModelSpec
from hpcgnn.train.account import KEPT, held_bytes, make_account
from hpcgnn.train.loop import Trainer
from hpcgnn.train.memory import MemoryProfile, PeakMemory
from hpcgnn.train import toy

ROWS = 8192  # so many that what has no row for each node (weights and their gradients, sums) does not count
D_IN, HIDDEN, CLASSES = 24, 32, 6
VARIANTS = [
    {"model": model, "dropout": p, "d_in": d_in, **extra}
    for model, p, d_in in itertools.product(("gcn", "sage", "gat"), (0.0, 0.5), (D_IN, 3 * HIDDEN))
    for extra in ({}, {"residual": True, "layers": 4})
]
VARIANTS += [
    {"model": "sage", "dropout": 0.5, "input_dropout": "raw"},
    {"model": "gcn", "dropout": 0.5, "input_dropout": "none"},
    {"model": "gcn", "dropout": 0.5, "layers": 1},
    {"model": "sgc", "dropout": 0.5, "layers": 2},
    {"model": "gat", "dropout": 0.5, "heads": 4, "hidden": 8, "out_heads": 3},
    {"model": "sage", "dropout": 0.5, "sparse_input": True},
    {"model": "gcn", "dropout": 0.0, "hidden": 4},
]


def build(**options):
    """(spec, local graph, Trainer) on the toy graph, after one step and one evaluation."""
    spec = complete(ModelSpec(**{"d_in": D_IN, "classes": CLASSES, "layers": 3, "hidden": HIDDEN, **options}))
    config = make_config({"graph": "none", "model": spec.model}, registry_choices())
    local = toy.toy_graph(spec, False)
    trainer = Trainer(local, spec, config, SoloCommunicator(), HaloBuffers(0))
    trainer.step(0)
    trainer.evaluate()
    return spec, local, trainer


def allocated(function):
    """(most bytes that were alive during a call, bytes alive after it, its result), relative to before it."""
    gc.collect()  # what was lying about must not go while we count
    gc.disable()
    try:
        return _allocated(function)
    finally:
        gc.enable()


def _allocated(function):
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as watched:
        result = function()
    events = [e for e in watched.profiler.kineto_results.events() if e.name() == "[memory]"]
    alive = most = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        alive += event.nbytes()
        most = max(most, alive)
    return most, alive, result


@pytest.fixture(autouse=True)
def many_nodes(monkeypatch):
    monkeypatch.setattr(toy, "NODES", ROWS)


@pytest.mark.parametrize("options", VARIANTS, ids=lambda options: "-".join(map(str, options.values())))
def test_footprint(options):
    """Exactly, but for what is as small as the parameters: gradients of weights, sums over nodes, indices."""
    spec, _, trainer = build(**options)
    told, column = footprint(spec, 1.0), 4 * ROWS
    forward, kept, loss = allocated(lambda: trainer.objective.local_loss(trainer.model(trainer.graph)))
    backward, _, _ = allocated(loss.backward)
    trainer.model.eval()
    with torch.no_grad():
        evaluation, _, _ = allocated(lambda: trainer.model(trainer.graph))
    measured = {"kept": kept, "forward": forward, "backward": kept + backward, "evaluation": evaluation}
    expected = {name: getattr(told, name) * column for name in measured}
    assert measured == pytest.approx(expected, rel=0.005), {
        k: (measured[k] / column, expected[k] / column) for k in measured
    }


def test_what_is_not_told():
    """No account is better than a wrong one."""
    for options in ({"model": "gin"}, {"model": "gcn", "norm": "layer"}, {"model": "sage", "aggregator": "max"}):
        spec, local, trainer = build(**options)
        assert footprint(spec, 1.0) is None
        account = make_account(trainer, local, spec)
        assert KEPT not in account["backward"] and account["backward"]["features"] == local.features.nbytes


def test_what_lasts():
    spec, local, trainer = build(model="sage", dropout=0.5)
    account = make_account(trainer, local, spec)
    assert set(account) == {"forward", "backward", "reduction", "step", "evaluation"}
    lasting, size = account["step"], sum(p.nbytes for p in trainer.model.parameters())
    steps = len(trainer.optimizer.state) * 4  # Adam counts its steps in one number per parameter
    assert lasting["parameters, gradients, optimizer"] == 5 * size + steps, "the best so far, and Adam's two moments"
    assert lasting["kept input aggregate"] == lasting["features"] == 4 * ROWS * D_IN
    assert lasting["graph structure and plan"] >= local.inward.nbytes
    assert account["forward"][KEPT] == account["backward"][KEPT] == 4 * ROWS * footprint(spec, 1.0).kept


def test_each_storage_counts_once():
    whole = torch.zeros(100)
    parameter = torch.nn.Parameter(torch.zeros(10))
    parameter.grad = torch.zeros(10)
    ring = [whole[:50], {"view": whole[50:]}, (parameter, np.zeros(3))]
    ring.append(ring)
    seen = set()
    assert held_bytes(ring, seen) == 400 + 80 + 24
    assert held_bytes(whole, seen) == 0


def test_marks_belong_to_their_phase():
    """The kernel's mark is reset between phases, and the mark of the whole span survives that."""
    size, peak = 64 << 20, PeakMemory()
    if not peak.begin_span():
        pytest.skip("this kernel does not let the high-water mark be reset")
    watch = MemoryProfile(peak)
    with watch("large"):
        torch.ones(size // 4)
    with watch("small"):
        torch.ones(10)
    assert watch.marks["large"] - watch.marks["small"] > 0.9 * size
    peak.read()
    assert peak.overall >= peak.span >= watch.marks["large"]
    peak.begin_span()
    assert watch.marks["large"] - peak.span > 0.9 * size
