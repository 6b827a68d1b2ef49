"""Forecasts of graphs that are known by numbers, where training sees a part of them: some nodes, or some edges."""

import pytest

from hpcgnn.estimate.arguments import Stats
from hpcgnn.estimate.counts.sources import AssumedGraph

from .test_estimate_copy import configure

GRAPH, RANKS, CUT, TRAIN = Stats(20_000, 300_000, 16, 4), 4, 0.4, 0.25


def forecast(**options):
    return AssumedGraph(GRAPH, CUT, TRAIN).forecast(configure(model="sage", **options), RANKS)


def sent(traffic):
    return sum(int(each.bytes.sum()) for each in traffic.values())


def test_training_nodes():
    """As if they were drawn by chance: a quarter of the nodes has a sixteenth of the edges between them."""
    whole, inductive = forecast(prune="none"), forecast(inductive=True)
    seen = inductive.shares.seen
    assert seen.nodes.sum() == pytest.approx(TRAIN * GRAPH.nodes, abs=RANKS)
    assert seen.edges.sum() == pytest.approx(TRAIN**2 * GRAPH.edges, abs=2 * RANKS)
    assert sent(inductive.halo) < sent(whole.halo) / 2
    assert inductive.mean.parts["features"] == pytest.approx((1 + TRAIN) * whole.mean.parts["features"], rel=0.01)


def test_sums_of_rows_travel_where_that_is_asked_for():
    """Of edges whose ends are hubs, fewer rows and sums serve than rows alone; with equal degrees little is won."""
    hubs = GRAPH._replace(exponent=2.2)
    saved = {}
    for name, graph in (("hubs", hubs), ("alike", GRAPH)):
        rows, sums = (
            AssumedGraph(graph, CUT, TRAIN).forecast(configure(model="sage", prune="none", halo=halo), RANKS)
            for halo in ("rows", "least")
        )
        assert rows.shares.map_rows == sums.shares.map_rows == rows.shares.inward.rows.sum()
        assert not sums.shares.directed, "the adjoint sends as many"
        saved[name] = 1 - sent(sums.halo) / sent(rows.halo)
    assert 0 <= saved["alike"] < saved["hubs"] < 1
    assert saved["hubs"] > 0.2
