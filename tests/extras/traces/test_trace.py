"""`--trace`: files in the Trace Event Format with every kind of span; the results of training stay the same."""

import gzip
import json
import socket

import pytest
from mpi.runs import log_of, losses, train_into

from hpcgnn.__main__ import registry_choices
from hpcgnn.comm.span_recorder import clock
from hpcgnn.config import make_config
from hpcgnn.errors import ConfigError
from hpcgnn.extras.traces.trace import CATEGORIES, epochs_to_trace, offset_to_first
from hpcgnn.output_files import files_of_run

EPOCHS = 4


def document(run_dir, rank):
    return json.loads(gzip.decompress((run_dir / "trace" / f"rank-{rank:05d}.json.gz").read_bytes()))


@pytest.fixture(scope="module")
def traced(comm, graph, session_path):
    """The run directory of a run that traces epochs 2 and 3."""
    run_dir = session_path / "traced"
    options = {
        "epochs": EPOCHS,
        "eval_every": 2,
        "checkpoint_every": 3,
        "halo_buffer": 0.01,
        "hidden": 8,
        "intra_node": "messages",
    }
    train_into(comm, graph, session_path / "untraced", **options)
    if comm.rank == 0:  # of an earlier start on more ranks
        (run_dir / "trace").mkdir(parents=True)
        (run_dir / "trace" / f"rank-{comm.size:05d}.json.gz").touch()
    comm.barrier()
    train_into(comm, graph, run_dir, **options, trace="2-3", resume=True)
    return run_dir


@pytest.mark.ranks(2)
def test_each_rank_has_a_file_that_says_who_it_is(comm, traced):
    """And the same is learned as without."""
    assert losses(traced) == losses(traced.parent / "untraced")
    assert not (traced.parent / "untraced" / "trace").exists()
    found = document(traced, comm.rank)
    about = found["otherData"]
    assert (about["rank"], about["ranks"], about["epochs"]) == (comm.rank, comm.size, [2, 3])
    assert traced / "trace" / f"rank-{comm.rank:05d}.json.gz" in files_of_run(traced), "no command writes over it"
    assert about["spans_lost"] == 0 and about["seconds_clock_uncertain"] >= 0
    names = [event["args"]["name"] for event in found["traceEvents"] if event["name"] == "process_name"]
    assert names == [f"rank {comm.rank} on {socket.gethostname()}"]


@pytest.mark.ranks(2)
def test_every_kind_of_span_is_there_and_one_inside_another(comm, traced):
    spans = [event for event in document(traced, comm.rank)["traceEvents"] if event["ph"] == "X"]
    assert all(span["pid"] == comm.rank and span["dur"] >= 0 for span in spans)
    ends = []
    for span in sorted(spans, key=lambda span: (span["ts"], -span["dur"])):
        while ends and ends[-1] <= span["ts"] + 0.01:
            ends.pop()
        assert not ends or span["ts"] + span["dur"] <= ends[-1] + 0.01, span
        ends.append(span["ts"] + span["dur"])
    assert [span["name"] for span in spans if span["cat"] == "epoch"] == ["epoch 2", "epoch 3"]
    phases = {span["name"] for span in spans if span["cat"] == "phase"}
    assert phases == {"forward", "backward", "reduction", "step", "evaluation", "checkpoint"}
    wanted = {"gather", "product"} | ({"pack", "wait", "turn", "reduction"} if comm.size > 1 else set())
    known = {"epoch", "phase", "kernel", "turn", "wait", "reduction", *CATEGORIES.values()}
    assert wanted <= {span["cat"] for span in spans} <= known
    for span in spans:
        if span["name"] == "turn":
            about = span["args"]
            number, turns = map(int, about["turn"].split(" of "))
            assert 1 <= number <= turns and about["kind"].startswith("halo_")
    if comm.size > 1:
        assert any(span["args"]["kind"] == "allreduce" for span in spans if span["name"] == "all ranks")


@pytest.mark.ranks(2)
def test_the_offset_between_clocks_is_found(comm):
    """Clocks that differ by an hour per rank: the estimated offset is right within its own uncertainty."""
    offset, uncertain = offset_to_first(comm, lambda: clock() - 3600.0 * comm.rank)
    assert offset == pytest.approx(3600.0 * comm.rank, abs=uncertain + 1e-6) and 0 <= uncertain < 5


@pytest.mark.ranks(2)
def test_a_trace_that_cannot_be_written_does_not_end_the_run(comm, graph, shared_path):
    """Something else has the name of its folder."""
    run_dir = shared_path / "run"
    if comm.rank == 0:
        run_dir.mkdir()
        (run_dir / "trace").touch()
    comm.barrier()
    assert len(train_into(comm, graph, run_dir, epochs=3, hidden=8, trace="2", resume=True)) == 3
    assert "the trace is not complete" in log_of(run_dir)


@pytest.mark.ranks(2)
def test_epochs_that_never_come_are_said(comm, graph, shared_path):
    train_into(comm, graph, shared_path / "late", epochs=1, trace="7-9", hidden=8)
    assert "--trace 7-9 names no epoch" in log_of(shared_path / "late")
    assert not (shared_path / "late" / "trace").exists()


@pytest.mark.parametrize(
    "text, first, last", [("3-4", 3, 4), ("7-7", 7, 7), ("1", 2, 2), ("5", 2, 6), ("1-2", 1, 2), ("", 1, 0)]
)
def test_epochs(text, first, last):
    assert epochs_to_trace(text) == (first, last)


@pytest.mark.parametrize("text", ["0", "-3", "4-3", "0-2", "3-", "a", "1.5", "2-3-4", "²"])
def test_no_epochs(text):
    with pytest.raises(ConfigError, match="--trace: expected a number of epochs, such as 3, or the first and the last"):
        make_config({"graph": "g.h5", "trace": text}, registry_choices())
