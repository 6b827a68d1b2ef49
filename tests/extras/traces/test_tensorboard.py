"""TensorBoard gets every epoch, also of a run that goes on."""

import pytest
from mpi.runs import log_of, train_into

from hpcgnn.extras.traces.tensorboard import scalars

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
    monkeypatch.setattr("hpcgnn.extras.traces.tensorboard.scalars", lambda record, metric: {}["nothing"])
    assert len(train_into(comm, graph, shared_path / "run", epochs=3, model="gcn", tensorboard=True)) == 3
    assert log_of(shared_path / "run").count("--tensorboard failed, and training goes on: KeyError") == 1


def test_metrics_of_links_and_what_is_not_defined():
    record = {"loss": 1.0, "lr": 0.1, "train": float("nan"), "val": 0.5, "links": {"test": {"hits@10": 0.25}}}
    told = scalars({**record, "seconds": {}, "bytes": {"plan": {"sum": 3}}, "messages": {}}, "mrr")
    assert told == {"loss": 1.0, "lr": 0.1, "mrr/val": 0.5, "hits@10/test": 0.25, "bytes/plan": 3}
