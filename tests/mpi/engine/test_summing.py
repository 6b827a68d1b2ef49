"""Gradients that are summed over ranks while the backward pass goes on: the sums are those of all gradients at the end,
each is begun as early as it can be, and no order of autograd's on any rank makes ranks wait for each other.
"""

import contextlib

import numpy as np
import pytest
import torch

from hpcgnn.engine import update
from hpcgnn.engine.gradient_sum import GradientSum, by_layer
from hpcgnn.engine.gradients import FlatGradients
from hpcgnn.errors import ConfigError

from ..estimate.test_estimated import check
from ..training import build_trainer, configure

pytestmark = pytest.mark.ranks(2, 3)

#: Bytes: less than any layer has, so that each layer is a part; 0: one sum.
EACH, ONE = 8, 0
WIDTH = 5


class Layers(torch.nn.Module):
    """A model of three layers, each twice as wide as the last one, with a norm's parameter behind the first two."""

    def __init__(self):
        super().__init__()
        self.convs = torch.nn.ModuleList(torch.nn.Linear(WIDTH * 2**at, WIDTH * 2 ** (at + 1)) for at in range(3))
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(WIDTH * 2 ** (at + 1)) for at in range(2))
        self.extra = torch.nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        x = x * self.extra
        for conv, norm in zip(self.convs, self.norms):
            x = norm(conv(x)).relu()
        return self.convs[2](x)


@pytest.fixture
def summed(comm):
    """make(least bytes) -> (a model alike on all ranks, its flat gradients, their GradientSum)."""

    def make(least):
        with torch.random.fork_rng():
            torch.manual_seed(3)
            model = Layers()
        layers = by_layer(model)
        flat = FlatGradients(parameter for layer in layers for parameter in layer).flat
        made.append(GradientSum(flat, layers, comm, least))
        return model, flat, made[-1]

    made = []
    yield make
    for each in made:
        each.close()


def overlaps(comm):
    return comm.prepare_sums()


def reduce(comm):
    return lambda numbers: comm.allreduce_(numbers, "allreduce")


def begin(comm):
    return lambda numbers: comm.begin_sum_(numbers, "allreduce")


def loss_of(comm, model, used):
    """A loss that depends on all layers, or on the first alone."""
    x = torch.full((4, WIDTH), comm.rank + 1.0) + torch.arange(WIDTH)
    return (model(x) if used == 3 else model.norms[0](model.convs[0](x))).square().sum()


def test_parts_are_begun_from_the_last_layer_to_the_first(comm, summed):
    """Each when the gradients of its layers are there, and with the numbers that they then have."""
    if not overlaps(comm):
        pytest.skip("sums are not begun early with one rank, nor by this transport")
    model, flat, total = summed(1)
    events = []
    for number, conv in enumerate(model.convs):
        conv.register_full_backward_hook(lambda *_, number=number: events.append(f"through layer {number}"))

    def noted(numbers):
        events.append(numbers.numel())
        return comm.begin_sum_(numbers, "allreduce")

    x = torch.ones(4, WIDTH, requires_grad=True)
    with total.during(noted):
        model(x).sum().backward()
    sizes = [sum(each.numel() for each in layer) for layer in by_layer(model)]
    assert events.index("through layer 2") < events.index(sizes[1])
    for layer in (2, 1):
        assert events.index(sizes[layer]) < events.index(f"through layer {layer - 1}")
    assert [event for event in events if isinstance(event, int)] == sizes[::-1]
    total.finish(reduce(comm))
    traffic = comm.ledger.take()["allreduce"]
    assert (traffic.messages, traffic.bytes_sent) == (3, 4 * flat.numel())


@pytest.mark.parametrize(
    "least, sizes",
    [(0, []), (1, [840, 260, 85]), (1040, [840, 260, 85]), (1044, [840, 345]), (3400, [1100, 85]), (1 << 20, [])],
)
def test_small_layers_are_summed_with_those_before(comm, summed, least, sizes):
    """Only the first layer, whose sum comes last, may have less than so many bytes; one part alone is none."""
    total = summed(least)[2]
    assert [part.numbers.numel() for part in total._parts] == (sizes if overlaps(comm) else [])


@pytest.mark.parametrize("least", [0, 1, 1000])
def test_against_the_sum_of_all_at_the_end(comm, summed, least):
    """Also where some ranks, or all, have no gradient of the last layers."""
    for used in (
        lambda rank: 3,
        lambda rank: 1 if rank == 0 else 3,
        lambda rank: 3 if rank == 0 else 1,
        lambda rank: 1,
    ):
        model, flat, total = summed(least)
        expected, right, _ = summed(0)
        for _ in range(2):
            for each in (flat, right):
                each.zero_()
            with total.during(begin(comm)):
                loss_of(comm, model, used(comm.rank)).backward()
            total.finish(reduce(comm))
            loss_of(comm, expected, used(comm.rank)).backward()
            comm.allreduce_(right, "control")
            torch.testing.assert_close(flat, right, rtol=1e-6, atol=1e-6)
            assert len(set(comm.allgather_object(flat.numpy().tobytes()))) == 1


def test_a_gradient_that_comes_twice_is_an_error(comm, summed):
    """Its sum may be on its way already."""
    model, _, total = summed(1)
    if not overlaps(comm):
        return
    x = torch.ones(4, WIDTH)
    with total.during(begin(comm)), contextlib.ExitStack() as stack:
        model(x).sum().backward()
        stack.enter_context(pytest.raises(ConfigError, match="expected one backward pass for a step"))
        model(x).sum().backward()
    total.finish(reduce(comm))


MODELS = {
    "sage, batch norm": {"model": "sage", "norm": "batch"},
    "gat, layer norm": {"model": "gat", "heads": 2, "hidden": 8, "norm": "layer"},
    "gin, clipped": {"model": "gin", "clip_norm": 0.5},
    "stale": {"schedule": "stale", "model": "sage", "norm": "batch"},
    "tma": {"schedule": "tma", "average_steps": 2, "epochs": 4, "correct_every": 2},
}


@pytest.mark.smoke
@pytest.mark.parametrize("kind", MODELS)
def test_the_same_is_learned(comm, paths, kind, monkeypatch):
    """As where all is summed at the end. With two ranks there is one order to add in, so that bits are the same."""
    losses, sums = {}, {}
    for size in (ONE, EACH):
        monkeypatch.setattr(update, "LEAST_SUM", size)
        trainer = build_trainer(comm, configure(paths["directed multi-label"], **MODELS[kind]), "random-clusters")
        losses[size] = [trainer.step(epoch) for epoch in range(4)]
        sums[size] = comm.ledger.take()["allreduce"]
    if comm.size <= 2:
        assert losses[EACH] == losses[ONE]
    np.testing.assert_allclose(losses[EACH], losses[ONE], rtol=1e-5)
    assert sums[EACH].bytes_sent == sums[ONE].bytes_sent
    steps = sums[ONE].messages
    assert sums[EACH].messages == steps * (len(trainer.model.convs) if overlaps(comm) else 1)


@pytest.mark.parametrize("size, parts", [(EACH, 4), (1000, 3), (1 << 20, 1)])
def test_an_estimate_counts_the_parts(comm, graph, size, parts, monkeypatch):
    monkeypatch.setattr(update, "LEAST_SUM", size)
    if comm.size > 1 and not overlaps(comm):
        pytest.skip("the estimate is of another transport")
    forecast, _ = check(comm, configure(graph, model="sage", layers=4), "metis")
    assert forecast.others["allreduce"][0] == (parts if comm.size > 1 else 1)


def test_stages_leave_nothing_behind(comm, graph, monkeypatch):
    """Parameters of a stage before are trained again in the next, whose sums are others."""
    options = {"schedule": "lazy", "model": "gcn", "layer_epochs": "1,1,1", "finetune": 2, "epochs": 5}
    losses = []
    for size in (ONE, EACH):
        monkeypatch.setattr(update, "LEAST_SUM", size)
        trainer = build_trainer(comm, configure(graph, **options), "metis")
        found = []
        for stage in range(len(trainer.stages)):
            if stage:
                trainer.schedule.sync.follow(stage, trainer.model)
                trainer.begin_stage(stage, 0)
            found += [trainer.step(epoch) for epoch in range(2)]
        losses.append(found)
    np.testing.assert_allclose(*losses, rtol=1e-5)
