"""Those who are told of every epoch: what they are told, also by a run that goes on. Their faults end no run."""

import json

import pytest

from hpcgnn.app.train import train
from hpcgnn.errors import HpcgnnError
from hpcgnn.plugins.watching import scalars

from ..training import configure, make_graphs

pytestmark = pytest.mark.ranks(2)

OWN = """
import json

def epoch(record):
    if record["epoch"] == {fails}:
        raise OSError("nobody answers")
    with open({told!r}, "a") as file:
        file.write(json.dumps(record) + "\\n")

def close():
    with open({told!r}, "a") as file:
        file.write('"closed"\\n')
"""


@pytest.fixture(scope="module")
def graph(comm, session_path):
    return make_graphs(comm, session_path, nodes=300)["undirected"]


def run(comm, graph, folder, session, epochs=3, fails=0, source=OWN, **options):
    """Train in folder/run, watched by a file there."""
    own = folder / "own.py"
    if comm.rank == 0:
        own.write_text(source.format(told=str(folder / "told"), fails=fails))
    comm.barrier()
    fixed = {"run_dir": str(folder / "run"), "watch": str(own), "model": "gcn"}
    assert train(configure(graph, **fixed, epochs=epochs, **options), session) == 0
    comm.barrier()


def records(folder):
    return [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]


def told(folder):
    return [json.loads(line) for line in (folder / "told").read_text().splitlines()]


@pytest.mark.usefixtures("no_pictures")
def test_a_file_of_ones_own_gets_every_record(comm, graph, shared_path, job_session):
    run(comm, graph, shared_path, job_session)
    assert told(shared_path) == [*records(shared_path), "closed"]


@pytest.mark.usefixtures("no_pictures")
def test_a_file_that_fails_ends_no_run(comm, graph, shared_path, job_session):
    run(comm, graph, shared_path, job_session, fails=2)
    assert told(shared_path) == records(shared_path)[:1], "after its failure it is told nothing, and not closed"
    assert len(records(shared_path)) == 3
    log = (shared_path / "run" / "log.txt").read_text()
    assert log.count("failed after epoch 2 and is not told of more") == 1 and "OSError: nobody answers" in log


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.parametrize(
    "source, said", [("def epochs(record): pass", "no function epoch"), ("import nowhere", "cannot be run: ModuleNotF")]
)
def test_a_file_that_cannot_serve_is_refused_before_anything_is_written(
    comm, graph, shared_path, job_session, source, said
):
    with pytest.raises(HpcgnnError) as caught:
        run(comm, graph, shared_path, job_session, source=source)
    assert comm.rank > 0 or said in str(caught.value)
    comm.barrier()
    assert not (shared_path / "run").exists()


@pytest.mark.usefixtures("no_pictures")
def test_tensorboard_has_every_epoch_once_also_of_a_run_that_goes_on(comm, graph, shared_path, job_session):
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    options = {"tensorboard": True, "checkpoint_every": 2}
    run(comm, graph, shared_path, job_session, epochs=2, **options)
    run(comm, graph, shared_path, job_session, epochs=4, resume=True, **options)
    found = events.EventAccumulator(str(shared_path / "run" / "tensorboard"), {events.SCALARS: 0}).Reload()
    expected = {name: [] for name in found.Tags()["scalars"]}
    for record in records(shared_path):
        for name, value in scalars(record, "accuracy").items():
            expected[name].append((record["epoch"], pytest.approx(value, rel=1e-6)))
    assert {"loss", "accuracy/val", "seconds/epoch"} <= set(expected)
    assert {name: [(event.step, event.value) for event in found.Scalars(name)] for name in expected} == expected
