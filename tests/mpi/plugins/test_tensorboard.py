"""TensorBoard gets every epoch, also of a run that goes on."""

import pytest

from hpcgnn.plugins.tensorboard import scalars

from ..runs import log_of, train_into

pytestmark = pytest.mark.ranks(2)


def test_every_epoch_is_there_once_also_of_a_run_that_goes_on(comm, graph, shared_path):
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    options = {"tensorboard": True, "checkpoint_every": 2, "model": "gcn"}
    train_into(comm, graph, shared_path / "run", epochs=2, **options)
    records = train_into(comm, graph, shared_path / "run", epochs=4, resume=True, **options)
    found = events.EventAccumulator(str(shared_path / "run" / "tensorboard"), {events.SCALARS: 0}).Reload()
    expected = {name: [] for name in found.Tags()["scalars"]}
    for record in records:
        for name, value in scalars(record, "accuracy").items():
            expected[name].append((record["epoch"], pytest.approx(value, rel=1e-6)))
    assert {"loss", "accuracy/val", "seconds/epoch"} <= set(expected)
    assert {name: [(event.step, event.value) for event in found.Scalars(name)] for name in expected} == expected


def test_a_failure_ends_no_run(comm, graph, shared_path, monkeypatch):
    pytest.importorskip("tensorboard")
    monkeypatch.setattr("hpcgnn.plugins.tensorboard.scalars", lambda record, metric: {}["nothing"])
    assert len(train_into(comm, graph, shared_path / "run", epochs=3, model="gcn", tensorboard=True)) == 3
    assert log_of(shared_path / "run").count("--tensorboard failed, and training goes on: KeyError") == 1
