"""The file of records: its errors are errors of all ranks, and no epoch sends a word about it."""

import resource

import pytest

from hpcgnn.engine.checkpoint import checkpoints
from hpcgnn.engine.hooks import Plugin
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
    """The epoch after the first lost record reports it; in the last epoch the checkpoint does."""
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
    # Counted when it is over: the words about the checkpoint of epoch 2 are those of epoch 3.
    words = [record["messages"].get("control", {"max": 0})["max"] for record in found]
    assert words[1] == words[3] == 0 < words[2]
    assert [record["messages"]["metrics"]["max"] for record in found[1:]] == [3] * 3
