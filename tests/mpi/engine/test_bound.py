"""The work of an epoch, against counts by hand, and the bound that follows from it."""

import math

import pytest

from hpcgnn.engine.bound import bound_of_epoch, work_of_epoch

from ..training import CLASSES, FEATURES, NODES, build_trainer, configure, make_graphs

MAP, HIDDEN = "random-clusters", 16
INPUT, INNER, LOGITS = FEATURES, HIDDEN, CLASSES
# Three layers: forwards, gradients of weights, and but for the first one gradients of the input.
PRODUCTS = 2 * INPUT * INNER + 3 * INNER * INNER + 3 * INNER * LOGITS
# The input once forwards and backwards, its gradient, the output, and the gradient of the output.
NUMBERS = (2 * INPUT + 2 * INNER) + (3 * INNER + 2 * INNER) + (3 * INNER + 2 * LOGITS)


def of_all_ranks(comm, trainer):
    """(multiplications, bytes, in-edges) of all ranks. Collective."""
    ranks = comm.allgather_object((*work_of_epoch(trainer), trainer.local.inward.num_edges))
    return tuple(map(sum, zip(*ranks)))


@pytest.mark.ranks(2)
@pytest.mark.parametrize("model, weights", [("gcn", 1), ("sage", 2)])
@pytest.mark.parametrize("kept, gathering", [("auto", 2), ("never", 3)])
def test_counts_by_hand(comm, session_path, model, weights, kept, gathering):
    """SAGE has two matrices in a layer. An aggregate of the features that is kept is gathered once for the run."""
    path = make_graphs(comm, session_path)["undirected"]
    trainer = build_trainer(comm, configure(path, model=model, keep_input=kept), MAP)
    multiplied, moved, edges = of_all_ranks(comm, trainer)
    assert multiplied == weights * NODES * PRODUCTS
    assert moved == 4 * NODES * NUMBERS + gathering * 2 * 4 * edges


@pytest.mark.ranks(2)
def test_pruned_layers_count_the_rows_that_they_compute(comm, session_path):
    path = make_graphs(comm, session_path, nodes=600, train=1 / 40, degree=3)["undirected"]
    trainer = build_trainer(comm, configure(path, model="sage", prune="auto"), MAP)
    rows = trainer.views.rows_computed(3)
    assert rows[2] < rows[1] < rows[0]
    first, inner, last = (2 * passes * n for passes, n in zip((2, 3, 3), rows))
    expected = first * INPUT * INNER + inner * INNER * INNER + last * INNER * LOGITS
    assert work_of_epoch(trainer)[0] == expected


@pytest.mark.ranks(2)
def test_the_bound_is_work_over_rates(comm, session_path):
    """A schedule that does not see all rows has none."""
    path = make_graphs(comm, session_path)["undirected"]
    found = bound_of_epoch(build_trainer(comm, configure(path, model="sage"), MAP))
    times = (found[name] / found[f"{name}_per_second"] for name in ("multiplications", "moved_bytes"))
    assert found["seconds"] == pytest.approx(sum(times)) and 0 < found["seconds"] < math.inf
    assert bound_of_epoch(build_trainer(comm, configure(path, schedule="bns", boundary_rate=0.5), MAP)) is None
