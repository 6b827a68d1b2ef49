"""Small copies of a rank: they hold exactly what is asked for, and what they take grows in a straight line."""

from dataclasses import replace

import numpy as np
import pytest
from graphs import META

from hpcgnn.config import make_config
from hpcgnn.estimate import forecast
from hpcgnn.estimate.small_copy import Direction, GhostCommunicator, Size, make_copy
from hpcgnn.estimate.trial import Experiment
from hpcgnn.graphfile.storage import SPLITS
from hpcgnn.kernels import library
from hpcgnn.plan.choices import registry_choices
from hpcgnn.plan.run_plan import plan

CHOICES = registry_choices()


def configure(**options):
    return make_config({"graph": "none", "hidden": 16, "layers": 2, **options}, CHOICES)


SIZES = {
    "usual": Size(4, 100, 30, 60, Direction(400, 200, 80, 70, 90), None),
    "no halo": Size(4, 100, 30, 0, Direction(400, 0, 0, 0, 0), None),
    "nobody else": Size(1, 100, 30, 0, Direction(400, 0, 0, 0, 0), None),
    "more halo rows than nodes": Size(8, 20, 5, 20, Direction(40, 500, 300, 310, 320), None),
    "one node": Size(3, 1, 1, 1, Direction(0, 7, 7, 2, 7), None),
    "one node, no edge": Size(3, 1, 1, 0, Direction(0, 0, 0, 0, 0), None),
    "only sends": Size(3, 50, 10, 20, Direction(100, 0, 0, 25, 30), Direction(90, 40, 25, 0, 30)),
    "directed": Size(3, 50, 10, 40, Direction(100, 60, 35, 25, 40), Direction(90, 70, 30, 36, 50)),
    "others receive more": Size(5, 60, 10, 40, Direction(100, 60, 10, 25, 400), None),
}


@pytest.mark.parametrize("cap", [7, 10_000])
@pytest.mark.parametrize("name", SIZES)
def test_a_copy_holds_what_is_asked_for(name, cap):
    size = SIZES[name]
    decided = plan(configure(model="gcn", self_loops="keep"), META)
    local = make_copy(size, np.array([3, 8, 20]), decided, cap, GhostCommunicator(size.ranks))
    assert local.num_owned == size.nodes and local.features.shape == (size.nodes, decided.spec.d_in)
    assert int((local.split == SPLITS["train"]).sum()) == size.train
    assert (local.outward is local.inward) == (size.outward is None)
    for adjacency, asked in ((local.inward, size.inward), (local.outward, size.outward or size.inward)):
        rows_of = adjacency.plan
        assert adjacency.own.num_edges == asked.own
        assert sum(block.num_edges for block in adjacency.halo) == asked.remote
        assert (rows_of.num_halo, rows_of.num_boundary) == (asked.received, asked.sent)
        rows, rounds = max(asked.received, asked.sent), max(1, -(-asked.most // cap))
        assert len(rows_of.rounds) == (-(-rows // -(-rows // rounds)) if rows else 0), "as many as others have"
        assert len(np.unique(rows_of.send_rows)) == min(asked.sent, max(1, size.outer))


@pytest.mark.parametrize("name", ["usual", "directed", "nobody else"])
def test_a_copy_has_the_self_loops_that_there_are(name):
    size = replace(SIZES[name], loops=40)
    decided = plan(configure(model="gcn", self_loops="add"), META)
    local = make_copy(size, np.array([3, 8, 20]), decided, 100, GhostCommunicator(size.ranks))
    for adjacency, asked in ((local.inward, size.inward), (local.outward, size.outward or size.inward)):
        drawn = adjacency.own.num_edges - asked.own  # those that were added: a few were drawn by chance already
        assert size.nodes - 40 - 10 <= drawn <= size.nodes - 40


@pytest.mark.parametrize("factor", [1.0, 0.5, 0.01, 1e-9])
def test_a_smaller_copy_has_at_least_one_of_what_there_is(factor):
    for size in SIZES.values():
        smaller = size.scaled(factor)
        for name, value in vars(size.inward).items():
            assert (getattr(smaller.inward, name) > 0) == (value > 0)
            assert abs(getattr(smaller.inward, name) - factor * value) <= 1
        assert 1 <= smaller.train <= smaller.nodes and smaller.outer <= smaller.nodes
        assert (smaller.outward is None) == (size.outward is None)
    assert SIZES["directed"].scaled(1.0) == SIZES["directed"]


# Tensors of a quarter of it come from the arena, as those of the whole do, and so does what batch norm sums in: of
# smaller ones memory grows in no straight line.
WHOLE = Size(4, 56_000, 18_700, 28_000, Direction(280_000, 112_000, 70_000, 70_000, 77_000), None)
KINDS = {
    "sage": {"model": "sage", "norm": "batch", "hidden": 32},
    "gat": {"model": "gat", "heads": 2, "hidden": 8, "dropout": 0.0},
    "gcn, mixed": {"model": "gcn", "precision": "mixed"},
}


@pytest.fixture
def own_products():
    """Products of float32 are our own, whatever this processor would choose: torch's hold a tile of rows (256 KiB) more
    or less by chance, which is 1.6 % of a rank as small as these.
    """
    found = library.load()
    if found.reason is None:
        library.use(found.on(found.vector_path, multiplies=True))
    yield
    library.use(found)


@pytest.mark.usefixtures("own_products")
@pytest.mark.parametrize("kind", KINDS)
def test_two_copies_foretell_the_rank(kind, monkeypatch):
    """Memory in all, that of the large parts, and work, within 2 %."""
    config = configure(**KINDS[kind])
    experiment, degrees = Experiment.of(plan(config, META).deciding(False)), np.array([4, 7, 10])
    monkeypatch.setattr(forecast, "NODES", WHOLE.nodes)
    whole, _ = forecast.rank_of(experiment, WHOLE, degrees)
    monkeypatch.setattr(forecast, "NODES", WHOLE.nodes // 2)
    told, trial = forecast.rank_of(experiment, WHOLE, degrees)
    assert trial.boundary[0] < 0.6 * WHOLE.inward.sent, "it was a smaller copy"
    assert told.loaded == pytest.approx(whole.loaded, rel=0.02)
    outside = forecast.OUTSIDE
    assert told.growth - outside == pytest.approx(whole.growth - outside, rel=0.02)
    for part, size in whole.parts.items():
        assert told.parts[part] == pytest.approx(size, rel=0.02, abs=0.01 * whole.growth), part
    assert told.parts["halo_buffers"] <= experiment.limit
    assert told.gathered == pytest.approx(whole.gathered, rel=0.02)
    assert told.multiplied == pytest.approx(whole.multiplied, rel=0.02)


def test_a_rank_without_training_nodes_is_tried_out():
    config = configure(model="sage")
    size = Size(3, 50, 0, 40, Direction(100, 60, 35, 25, 40), None)
    rank, _ = forecast.rank_of(Experiment.of(plan(config, META).deciding(False)), size, np.array([4]))
    assert rank.growth > rank.parts["gradients"] > 0
