"""The scratch directory of an import: gone at its end."""

import resource
import signal

import numpy as np
import pytest
from partition_helpers import odd_graph, save_npz

from hpcgnn.errors import FormatError
from partition_tools.workspace.scratch import Scratch
from partition_tools.workspace.working import Resources
from partition_tools.workspace.working import working as working_in

N = 60


def working(folder):
    return working_in(folder / "g.h5", Resources(1 << 10))


@pytest.mark.parametrize("error", [KeyboardInterrupt(), FormatError("a wrong line")])
def test_it_is_removed_at_the_end(tmp_path, error):
    with pytest.raises(type(error)), working(tmp_path) as scratch:
        scratch.save("half", np.arange(3))
        raise error
    assert not list(tmp_path.iterdir())


def test_where_it_is(cli, tmp_path):
    """In the output's folder, or the user's; the remains of a killed job go."""
    save_npz(tmp_path / "g.npz", *odd_graph(), N)
    left = Scratch(tmp_path / ".g.h5.work", 1 << 10)
    left.save("half", np.arange(3))
    for more in ((), ("--scratch", tmp_path / "here")):
        assert cli("import", tmp_path / "g.npz", "-o", tmp_path / "g.h5", "--force", *more)[0] == 0
    assert not list((tmp_path / "here").iterdir()) and not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("size", ["12K", "much", "8X"])
def test_memory_is_a_size(cli, tmp_path, capsys, size):
    code, *said = cli("import", tmp_path / "g.npz", "-o", tmp_path / "g.h5", "--memory", size)
    assert code == 2 and size in f"{said}{capsys.readouterr().err}"


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
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
