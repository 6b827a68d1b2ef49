"""Commands that are killed, or asked to end, while they write: the target stays, and the same command then works.

Two commands with one target: the second reports this and stops, whichever they are.
"""

import multiprocessing
import os
import shutil
import signal
import time

import h5py
import pytest
from partition_helpers import odd_graph, save_npz, view

from partition_tools import __main__
from partition_tools.cli import main as command_line
from partition_tools.cli.main import main
from partition_tools.workspace.claim import claimed

FORK = multiprocessing.get_context("fork")
COMMANDS = {
    "import": ("import", "g.npz", "-o", "new.h5"),
    "import over": ("import", "g.npz", "-o", "old.h5", "--force"),
    "generate": ("generate", "planted", "-o", "new.h5", "--nodes", 60, "--degree", 3, "--features", 4, "--classes", 2),
    "partition": ("partition", "add", "old.h5", "--ranks", "2", "--clusters", 8),
    "partition elsewhere": ("partition", "add", "old.h5", "--ranks", "2", "-o", "new.h5"),
    "add a map": ("partition", "add", "done.h5", "--ranks", "3"),
    "add a map elsewhere": ("partition", "add", "done.h5", "--ranks", "3", "-o", "new.h5"),
}


def words(folder, name):
    known = ("g.npz", "old.h5", "new.h5", "done.h5")
    return [str(folder / word) if word in known else str(word) for word in COMMANDS[name]]


def target(folder, name):
    given = words(folder, name)
    return folder / os.path.basename(given[given.index("-o") + 1] if "-o" in given else given[2])


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    save_npz(folder / "g.npz", *odd_graph(), 60)
    assert main(["import", str(folder / "g.npz"), "-o", str(folder / "old.h5")]) == 0
    words = ("partition", "add", folder / "old.h5", "--ranks", 2, "--clusters", 8, "-o", folder / "done.h5")
    assert main(list(map(str, words))) == 0
    return folder


@pytest.fixture
def folder(made, tmp_path):
    return shutil.copytree(made, tmp_path, dirs_exist_ok=True)


def ended_while_writing(command, number, datasets):
    """Run a command that gets a signal when it begins to write this number of datasets; returns the exit code."""

    def live():
        inner, begun = h5py.Group.create_dataset, 0

        def create(*arguments, **options):
            nonlocal begun
            begun += 1
            if begun == datasets:
                os.kill(os.getpid(), number)
                time.sleep(0)  # where Python handles it
            return inner(*arguments, **options)

        h5py.Group.create_dataset = create
        os._exit(__main__.run(command))

    child = FORK.Process(target=live)
    child.start()
    child.join(60)
    return child.exitcode


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "asked to end"])
@pytest.mark.parametrize("name", COMMANDS)
def test_interrupted_while_writing(folder, number, name):
    files = {path: path.read_bytes() for path in folder.iterdir()}
    for datasets in (1,) if name.startswith("add") else (1, 6):
        code = ended_while_writing(words(folder, name), number, datasets)
        assert code == (-signal.SIGKILL if number == signal.SIGKILL else 130)
        assert {path: path.read_bytes() for path in folder.iterdir() if not path.name.startswith(".")} == files
        if number == signal.SIGTERM:
            assert set(folder.iterdir()) == set(files), "it cleans up after itself"
    assert main(words(folder, name)) == 0
    assert set(folder.iterdir()) == {*files, target(folder, name)}, "and nothing of what was killed is left"
    assert view(target(folder, name)).meta.num_nodes == 60


@pytest.mark.parametrize("name", COMMANDS)
def test_a_target_that_another_command_writes(folder, fails, name):
    with claimed(target(folder, name)):
        assert "being written by another process" in fails(*words(folder, name))


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_interrupt_and_faults(monkeypatch, capsys, error):
    def run(arguments, reporter):
        raise error

    monkeypatch.setattr(command_line.inspect_graph, "run", run)
    if error is KeyboardInterrupt:
        assert main(["inspect", "x"]) == 130 and "interrupted" in capsys.readouterr().err
    else:  # of ours: with its traceback
        with pytest.raises(error):
            main(["inspect", "x"])
