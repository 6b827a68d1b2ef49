"""Small copies of a rank: their memory and work grow in a straight line."""

import numpy as np
import pytest
from graphs import META

from hpcgnn.config import make_config
from hpcgnn.errors import ConfigError
from hpcgnn.extras.estimate import forecast
from hpcgnn.extras.estimate.small_copy import CopyDirection, Size
from hpcgnn.extras.estimate.trial import Experiment
from hpcgnn.kernels import library
from hpcgnn.plan.choices import registry_choices
from hpcgnn.plan.run_plan import plan

CHOICES = registry_choices()


def configure(**options):
    return make_config({"graph": "none", "hidden": 16, "layers": 2, **options}, CHOICES)


# Tensors of a quarter of it come from the arena, as those of the whole do, and so does what batch norm sums in: of
# smaller ones memory grows in no straight line.
WHOLE = Size(4, 56_000, 18_700, 28_000, CopyDirection(280_000, 112_000, 70_000, 70_000, 77_000), None)
KINDS = {
    "sage": {"model": "sage", "norm": "batch", "hidden": 32},
    "gat": {"model": "gat", "heads": 2, "hidden": 8, "dropout": 0.0},
    "gcn, mixed": {"model": "gcn", "precision": "mixed"},
}


@pytest.fixture
def own_products():
    """Products of float32 are our own, whatever this processor would choose. Torch's products hold a tile of rows (256
    KiB) more or less by chance. That is 1.6 % of a rank as small as these.
    """
    found = library.load()
    if found.reason is None:
        other = found.on(found.vector_path)
        other.native.own_products_from = float("inf") if found.vector_path == "baseline" else 1
        library.use(other)
    yield
    library.use(found)


@pytest.mark.usefixtures("own_products")
@pytest.mark.parametrize("kind", KINDS)
def test_two_copies_foretell_the_rank(kind, monkeypatch):
    """Memory in all, memory of the large parts, and work, within 2 %."""
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
    size = Size(3, 50, 0, 40, CopyDirection(100, 60, 35, 25, 40), None)
    rank, _ = forecast.rank_of(Experiment.of(plan(config, META).deciding(False)), size, np.array([4]))
    assert rank.growth > rank.parts["gradients"] > 0


def test_the_subgraph_of_training_nodes_is_not_counted():
    config = configure(model="sage").replace(inductive=True)
    with pytest.raises(ConfigError, match="estimate counts no subgraph of --inductive; expected"):
        Experiment.of(plan(config, META))
