"""What a step of training sends, exactly: a constant input once in the run, nothing twice, one all-reduce,
evaluation by itself.
"""

import pytest

from ..training import CLASSES, FEATURES, GRAPHS, build_trainer, configure, make_graphs

pytestmark = pytest.mark.ranks(2, 3)

EPOCHS = 3


@pytest.fixture(scope="module")
def paths(comm, session_path):
    return make_graphs(comm, session_path, nodes=300)


def rows_sent(trainer):
    """(forwards, backwards): rows that this rank sends in one aggregation."""
    halo = trainer.schedule.halo
    return halo.inward.plan.num_boundary, halo.outward.plan.num_boundary


# Widths that are exchanged: once at the start, and in every step forwards and backwards. A layer sends the narrower
# of its two
# sides; a kept input needs no gradient; transforming first needs one, for the weights.
CASES = {
    "kept": ({"hidden": 16}, [FEATURES], [16, CLASSES], [CLASSES, 16]),
    "transform first": ({"hidden": 8}, [], [8, 8, CLASSES], [CLASSES, 8, 8]),
    "raw": ({"hidden": 32, "input_dropout": "raw"}, [], [FEATURES, 32, CLASSES], [CLASSES, 32]),
    "never kept": ({"hidden": 32, "keep_input": "never", "dropout": 0.0}, [], [FEATURES, 32, CLASSES], [CLASSES, 32]),
    "one layer": ({"layers": 1, "keep_input": "always"}, [FEATURES], [], []),
    "narrow at the end": ({"hidden": 4}, [], [4, 4, 4], [4, 4, 4]),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("kind", ["gcn", "gin"])
@pytest.mark.parametrize("name", GRAPHS)
def test_a_run(comm, paths, name, kind, case):
    options, once, forward, backward = CASES[case]
    trainer = build_trainer(comm, configure(paths[name], model=kind, **options), "metis")
    inward, outward = rows_sent(trainer)
    parameters = sum(p.numel() for p in trainer.model.parameters())
    comm.ledger.take()
    for epoch in range(EPOCHS):
        trainer.step(epoch)
        step = comm.ledger.take()
        assert sent(step, "halo_forward") == inward * 4 * sum(forward)
        assert sent(step, "halo_backward") == outward * 4 * sum(backward)
        assert sent(step, "input") == (inward * 4 * sum(once) if epoch == 0 else 0)
        assert (step["allreduce"].messages, step["allreduce"].bytes_sent) == (1, 4 * parameters)
        assert step["metrics"].messages == 1, "the loss, together with whether it is finite"
        assert set(step) <= {"halo_forward", "halo_backward", "input", "allreduce", "metrics"}
        trainer.evaluate()
        evaluation = comm.ledger.take()
        assert set(evaluation) == {"evaluation"}
        exchanged = evaluation["evaluation"].bytes_sent - inward * 4 * sum(forward)
        assert 0 <= exchanged <= 3 * 2 * 8, "one pass forwards, and a pair of counts for each split"


def sent(traffic, kind):
    return traffic[kind].bytes_sent if kind in traffic else 0


def test_sgc_never_exchanges_after_the_start(comm, paths):
    trainer = build_trainer(comm, configure(paths["undirected"], model="sgc", layers=3, keep_input="always"), "metis")
    comm.ledger.take()
    trainer.step(0)
    assert sent(comm.ledger.take(), "input") == 3 * rows_sent(trainer)[0] * 4 * FEATURES
    trainer.step(1)
    assert not set(comm.ledger.take()) & {"input", "halo_forward", "halo_backward"}
