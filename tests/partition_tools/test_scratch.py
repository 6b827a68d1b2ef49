"""The scratch directory of an import: gone after a success and a fault of the input, left where that may go on."""

import resource
import signal

import numpy as np
import pytest
from partition_helpers import odd_graph, save_npz

from hpcgnn.errors import FormatError
from partition_tools.cli import import_graph
from partition_tools.workspace.scratch import fingerprint
from partition_tools.workspace.working import Resources
from partition_tools.workspace.working import working as working_in

N = 60


def working(folder, identity="the same"):
    return working_in(folder / "g.h5", identity, Resources(1 << 10))


def leave(folder, error, finished=True):
    with pytest.raises(type(error)), working(folder) as scratch:
        if finished:
            scratch.save("half", np.arange(3))
        raise error


def caused(cause):
    error = FormatError("told in words")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), MemoryError(), caused(OSError(28, "No space left")), caused(ChildProcessError(-9))]
)
def test_it_is_left_where_the_same_call_may_go_on(tmp_path, error):
    leave(tmp_path, error)
    with working(tmp_path) as scratch:
        assert scratch.resumed and scratch.done("half")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("error, finished", [(FormatError("a wrong line"), True), (KeyboardInterrupt(), False)])
def test_it_is_removed_where_nothing_can_be_taken_up(tmp_path, error, finished):
    leave(tmp_path, error, finished)
    assert not list(tmp_path.iterdir())


def test_another_call_begins_anew(tmp_path):
    leave(tmp_path, KeyboardInterrupt())
    with working(tmp_path, "another") as scratch:
        assert not scratch.resumed and not scratch.done("half")


def test_identity(cli, tmp_path, monkeypatch):
    """The same command has the same identity; one with other options, or over a changed input or table, has another."""
    found = []
    inner = import_graph.working
    monkeypatch.setattr(import_graph, "working", lambda *words: found.append(words) or inner(*words))
    save_npz(tmp_path / "g.npz", *odd_graph(), N)
    command = ("import", tmp_path / "g.npz", "-o", tmp_path / "g.h5", "--force")
    for more in ((), ("--memory", "64M"), ("--scratch", tmp_path / "here"), ("--set", f"split.seed={1}")):
        assert cli(*command, *more)[0] == 0
    save_npz(tmp_path / "g.npz", *odd_graph(), N, y=np.arange(N) % 4)
    assert cli(*command)[0] == 0
    outputs, identities, resources = zip(*found)
    places = [each.scratch for each in resources]
    assert identities[0] == identities[1] == identities[2] != identities[3] != identities[4] != identities[0]
    assert set(outputs) == {tmp_path / "g.h5"} and places[1:3] == [None, tmp_path / "here"]
    assert not list((tmp_path / "here").iterdir()) and not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("size", ["12K", "much", "8X"])
def test_memory_is_a_size(cli, tmp_path, capsys, size):
    with pytest.raises(SystemExit) as end:
        cli("import", tmp_path / "g.npz", "-o", tmp_path / "g.h5", "--memory", size)
    assert end.value.code == 2 and size in capsys.readouterr().err


def test_where_no_directory_can_be_made(fails, tmp_path):
    save_npz(tmp_path / "g.npz", *odd_graph(), N)
    (tmp_path / "file").write_text("")
    error = fails("import", tmp_path / "g.npz", "-o", tmp_path / "g.h5", "--scratch", tmp_path / "file")
    assert str(tmp_path / "file") in error


def test_a_full_disk_is_an_error_before_anything_is_written(tmp_path):
    """A map of a sparse file would end the process with a signal when the disk is full. A limit of sizes does here."""
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        with working(tmp_path) as scratch:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, limits[1]))
            with pytest.raises(FormatError, match="--scratch"), scratch.array("large", (1 << 20,), np.int64):
                raise AssertionError("there is nothing to be filled")
            assert not scratch.done("large")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)


def test_what_lies_hidden_in_an_input_folder_is_no_input(tmp_path):
    (tmp_path / "x.npy").write_bytes(b"1")
    before = fingerprint(tmp_path)
    (tmp_path / ".g.h5.work").mkdir()
    (tmp_path / ".g.h5.work" / "a.npy").write_bytes(b"2")
    (tmp_path / ".g.h5.lock").write_bytes(b"")
    assert fingerprint(tmp_path) == before
    (tmp_path / "y.npy").write_bytes(b"1")
    assert fingerprint(tmp_path) != before
