"""The file of records beside the epochs: nobody waits for it, and what goes wrong with it is an error of all ranks."""

import json
import os
import resource
import threading

import pytest

from hpcgnn.engine.checkpoint import checkpoints
from hpcgnn.engine.hooks import Plugin
from hpcgnn.engine.rundir import RecordWriter
from hpcgnn.errors import HpcgnnError, RemoteError, RunDirError
from hpcgnn.plugins.registry import JOB_PLUGINS

from ..runs import records, train_into


class Full(Plugin):
    """From an epoch on, no file of rank 0 grows: as on a full file system, whatever user runs this."""

    def __init__(self, rank, epoch):
        self.rank, self.full = rank, epoch

    def after_record(self, record):
        if self.rank == 0 and record["epoch"] == self.full:
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))


@pytest.fixture
def file_sizes():
    """Limits of this process, put back afterwards."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.processes
@pytest.mark.ranks(2)
@pytest.mark.parametrize("full", [2, 5], ids=["in the middle", "before the checkpoint"])
def test_a_full_disk_ends_all_ranks_before_the_next_checkpoint(comm, graph, shared_path, file_sizes, full, monkeypatch):
    """The epoch after the first record that is lost says so, and the checkpoint does in the last one."""
    run_dir = shared_path / "run"
    monkeypatch.setitem(JOB_PLUGINS, "full", lambda config, session, buffers: Full(comm.rank, full))
    options = {"model": "gcn", "epochs": 6, "checkpoint_every": 100, "eval_every": 0}
    with pytest.raises(HpcgnnError, match="metrics.jsonl: File too large; free space") as caught:
        train_into(comm, graph, run_dir, **options)
    assert caught.value.everywhere
    assert type(caught.value) is (RunDirError if comm.rank == 0 else RemoteError)
    comm.barrier()
    # The record of that epoch is on its way when its plugins are told.
    found = [record["epoch"] for record in records(run_dir)]
    assert found == list(range(1, len(found) + 1)) and len(found) in (full - 1, full)
    assert not checkpoints(run_dir), "none claims what was lost"


@pytest.mark.ranks(2)
def test_an_epoch_without_a_checkpoint_sends_no_word_about_files(comm, graph, shared_path):
    options = {"model": "gcn", "epochs": 4, "checkpoint_every": 2, "eval_every": 0}
    found = train_into(comm, graph, shared_path / "run", **options)
    assert [record["epoch"] for record in found] == [1, 2, 3, 4]
    if comm.size > 1:
        # Counted when it is over: the words about the checkpoint of epoch 2 are those of epoch 3.
        words = [record["messages"].get("control", {"max": 0})["max"] for record in found]
        assert words[1] == words[3] == 0 < words[2]
        # The loss with three flags; sums and extremes of the costs.
        assert [record["messages"]["metrics"]["max"] for record in found[1:]] == [3] * 3
        costs = found[3]["bytes"]["metrics"]["max"] - 4 * 8
        assert costs % 8 == 0 and costs < 3 * 8 * 80, "as many numbers on any number of ranks"


def test_records_wait_for_a_file_that_takes_none(tmp_path):
    """A pipe that nobody reads from: `append` returns, `settle` does not before all is through, in order."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    writer = RecordWriter(path)
    count = 300
    for number in range(count):
        writer.append({"epoch": number, "text": "x" * 1000})  # a pipe holds 64 KiB
    settled = threading.Event()
    waiting = threading.Thread(target=lambda: (writer.settle(), settled.set()), daemon=True)
    waiting.start()
    assert not settled.wait(0.2)
    os.set_blocking(reader, True)
    text = b""
    while text.count(b"\n") < count:
        text += os.read(reader, 1 << 16)
    assert settled.wait(30) and not writer.failed
    assert [json.loads(line)["epoch"] for line in text.splitlines()] == list(range(count))
    writer.close()
    os.close(reader)


def test_the_first_error_stays(tmp_path):
    """What is not JSON is a fault of the program, and raised as what it is; nothing is written after it."""
    writer = RecordWriter(tmp_path / "records")
    writer.append({"epoch": 1})
    writer.append({"epoch": object()})
    writer.append({"epoch": 3})
    for _ in range(2):
        with pytest.raises(TypeError):
            writer.settle()
    assert writer.failed
    writer.close()
    assert (tmp_path / "records").read_text() == '{"epoch": 1}\n'
