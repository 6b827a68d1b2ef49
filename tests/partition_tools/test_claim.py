"""Two writers of one target, and writers that are killed."""

import multiprocessing
import os
import signal

import numpy as np
from partition_helpers import odd_graph, save_npz

from partition_tools.workspace.claim import claimed


def hold(path, ready, release):
    with claimed(path):
        ready.set()
        release.wait(60)


def test_two_imports_of_one_target(cli, fails, tmp_path):
    save_npz(tmp_path / "g.npz", *odd_graph(), 60)
    fork, command = multiprocessing.get_context("fork"), ("import", tmp_path / "g.npz", "-o", tmp_path / "g.h5")
    for end in ("leaves", "is killed"):
        ready, release = fork.Event(), fork.Event()
        other = fork.Process(target=hold, args=(tmp_path / "g.h5", ready, release))
        other.start()
        assert ready.wait(60)
        assert "being written by another process" in fails(*command)
        if end == "is killed":
            (tmp_path / ".g.h5.abc.part").write_bytes(np.zeros(10).tobytes())
            os.kill(other.pid, signal.SIGKILL)
        else:
            release.set()
        other.join()
    assert cli(*command)[0] == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["g.h5", "g.npz"], (
        "and nothing of the killed one is left"
    )
