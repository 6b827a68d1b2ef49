"""Inputs that can be read once: a pipe and standard input are read whole, or refused at once; nothing hangs."""

import os
import signal
import subprocess
import sys

import h5py
import numpy as np
import pytest

EDGES = b"src,dst\n0,1\n1,2\n2,3\n3,0\n"
TABLES = ("--features", "--labels", "--splits", "--node-types", "--node-ids")


def run(*words, given=b""):
    """(exit code, standard error) of an import that ends within a minute."""
    command = [sys.executable, "-m", "partition_tools", "import", *map(str, words)]
    ended = subprocess.run(command, input=given, capture_output=True, timeout=60)
    return ended.returncode, ended.stderr.decode()


def read_or_refused(output, code, error):
    if code == 0:
        with h5py.File(output) as file:
            assert file["topology/indices"][()].tolist() == [3, 0, 1, 2]
    else:
        lines = [line for line in error.splitlines() if "error:" in line]
        assert code == 2 and len(lines) == 1 and "Traceback" not in error, error
        assert not output.exists()
        assert "once" in lines[0] or "no input at -" in lines[0]


@pytest.mark.parametrize("name", ["/dev/stdin", "-"])
def test_standard_input(tmp_path, name):
    # cat edges.csv | import /dev/stdin lost all rows: the first reader took them to look at the heading.
    read_or_refused(tmp_path / "g.h5", *run(name, "--format", "edgelist", "-o", tmp_path / "g.h5", given=EDGES))


def test_a_table_from_standard_input(tmp_path):
    # A table is looked at before it is read, as an edge list is.
    (tmp_path / "e.csv").write_bytes(EDGES)
    words = (tmp_path / "e.csv", "--features", "/dev/stdin", "-o", tmp_path / "g.h5")
    read_or_refused(tmp_path / "g.h5", *run(*words, given=b"id,f\n3,3\n0,0\n1,1\n2,2\n"))


@pytest.fixture
def refused(fails, tmp_path):
    """refused(word, ...): an import is refused within a minute, since an input can be read once."""

    def late(number, frame):
        raise TimeoutError("a pipe without a writer was opened")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(60)
    yield lambda *words: "once" in fails("import", *words, "-o", tmp_path / "g.h5")
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("suffix", ["csv", "csv.gz", "parquet", "npz", "pt", "mtx", "graph"], ids=lambda name: name)
def test_a_named_pipe_nobody_waits_for(tmp_path, refused, suffix):
    # Opening a pipe without a writer waits for ever: it is refused before it is opened.
    os.mkfifo(tmp_path / f"p.{suffix}")
    assert refused(tmp_path / f"p.{suffix}")


@pytest.mark.parametrize(
    "option, suffix", [*((name, "csv") for name in TABLES), ("--features", "npy"), ("--edge-features", "npy")]
)
def test_a_table_that_is_a_pipe(tmp_path, refused, option, suffix):
    os.mkfifo(tmp_path / f"p.{suffix}")
    (tmp_path / "e.csv").write_bytes(EDGES)
    assert refused(tmp_path / "e.csv", option, tmp_path / f"p.{suffix}")


@pytest.mark.parametrize("name", ["edge_index.npy", "y.npy"])
def test_a_pipe_in_a_folder(tmp_path, refused, name):
    # A folder of arrays may hold a pipe; it must not hang, nor be left out.
    folder = tmp_path / "d"
    folder.mkdir()
    arrays = {"edge_index.npy": np.array([[0, 1], [1, 0]]), "y.npy": np.array([0, 1])}
    for each, array in arrays.items():
        os.mkfifo(folder / each) if each == name else np.save(folder / each, array)
    assert refused(folder, "--format", "npz")
