"""Those who are told of every epoch: what they are told, also by a run that goes on. Their faults end no run."""

import json

import pytest

from hpcgnn.errors import HpcgnnError
from hpcgnn.plugins.watching import scalars

from ..runs import log_of, train_into

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


def run(comm, graph, folder, epochs=3, fails=0, source=OWN, **options):
    """Train in folder/run, watched by a file there."""
    own = folder / "own.py"
    if comm.rank == 0:
        own.write_text(source.format(told=str(folder / "told"), fails=fails))
    comm.barrier()
    return train_into(comm, graph, folder / "run", watch=str(own), model="gcn", epochs=epochs, **options)


def told(folder):
    return [json.loads(line) for line in (folder / "told").read_text().splitlines()]


def test_a_file_of_ones_own_gets_every_record(comm, graph, shared_path):
    assert [*run(comm, graph, shared_path), "closed"] == told(shared_path)


def test_a_file_that_fails_ends_no_run(comm, graph, shared_path):
    found = run(comm, graph, shared_path, fails=2)
    assert told(shared_path) == found[:1], "after its failure it is told nothing, and not closed"
    assert len(found) == 3
    log = log_of(shared_path / "run")
    assert log.count("failed after epoch 2 and is not told of more") == 1 and "OSError: nobody answers" in log


@pytest.mark.parametrize(
    "source, said", [("def epochs(record): pass", "no function epoch"), ("import nowhere", "cannot be run: ModuleNotF")]
)
def test_a_file_that_cannot_serve_is_refused_before_anything_is_written(comm, graph, shared_path, source, said):
    with pytest.raises(HpcgnnError) as caught:
        run(comm, graph, shared_path, source=source)
    assert comm.rank > 0 or said in str(caught.value)
    comm.barrier()
    assert not (shared_path / "run").exists()


def test_tensorboard_has_every_epoch_once_also_of_a_run_that_goes_on(comm, graph, shared_path):
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    options = {"tensorboard": True, "checkpoint_every": 2}
    run(comm, graph, shared_path, epochs=2, **options)
    records = run(comm, graph, shared_path, epochs=4, resume=True, **options)
    found = events.EventAccumulator(str(shared_path / "run" / "tensorboard"), {events.SCALARS: 0}).Reload()
    expected = {name: [] for name in found.Tags()["scalars"]}
    for record in records:
        for name, value in scalars(record, "accuracy").items():
            expected[name].append((record["epoch"], pytest.approx(value, rel=1e-6)))
    assert {"loss", "accuracy/val", "seconds/epoch"} <= set(expected)
    assert {name: [(event.step, event.value) for event in found.Scalars(name)] for name in expected} == expected
