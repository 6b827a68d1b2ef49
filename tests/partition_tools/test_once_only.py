"""Inputs that can be read once: a pipe and standard input are read whole, or refused at once; nothing hangs."""

import os
import subprocess
import sys

import h5py
import numpy as np
import pytest

EDGES = b"src,dst\n0,1\n1,2\n2,3\n3,0\n"
TABLES = {
    "--features": b"id,f\n3,3\n0,0\n1,1\n2,2\n",
    "--labels": b"label\n0\n1\n0\n1\n",
    "--splits": b"id,split\n0,train\n1,val\n",
    "--node-types": b"id,type\n0,a\n1,b\n2,a\n3,a\n",
    "--node-ids": b"3\n1\n0\n2\n",
}


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


@pytest.mark.parametrize("option", TABLES)
def test_a_table_from_standard_input(tmp_path, option):
    # A table is looked at before it is read, as an edge list is.
    (tmp_path / "e.csv").write_bytes(EDGES)
    words = (tmp_path / "e.csv", option, "/dev/stdin", "-o", tmp_path / "g.h5")
    read_or_refused(tmp_path / "g.h5", *run(*words, given=TABLES[option]))


@pytest.mark.parametrize(
    "suffix", ["csv", "csv.gz", "parquet", "npz", "pt", "mtx", "graph", "npy"], ids=lambda name: name
)
def test_a_named_pipe_nobody_waits_for(tmp_path, suffix):
    # Opening a pipe without a writer waits for ever: it is refused before it is opened.
    pipe = tmp_path / f"p.{suffix}"
    os.mkfifo(pipe)
    (tmp_path / "e.csv").write_bytes(EDGES)
    words = (tmp_path / "e.csv", "--features", pipe) if suffix == "npy" else (pipe,)
    code, error = run(*words, "-o", tmp_path / "g.h5")
    assert code == 2 and "once" in error and "Traceback" not in error


def test_features_of_edges_from_a_pipe(tmp_path):
    # --edge-features NAME.npy is a file as well.
    os.mkfifo(tmp_path / "x.npy")
    (tmp_path / "e.csv").write_bytes(EDGES)
    code, error = run(tmp_path / "e.csv", "--edge-features", tmp_path / "x.npy", "-o", tmp_path / "g.h5")
    assert code == 2 and "once" in error and "Traceback" not in error


@pytest.mark.parametrize("name", ["edge_index.npy", "y.npy"])
def test_a_pipe_in_a_folder(tmp_path, name):
    # A folder of arrays may hold a pipe; it must not hang, nor be left out.
    folder = tmp_path / "d"
    folder.mkdir()
    arrays = {"edge_index.npy": np.array([[0, 1], [1, 0]]), "y.npy": np.array([0, 1])}
    for each, array in arrays.items():
        os.mkfifo(folder / each) if each == name else np.save(folder / each, array)
    code, error = run(folder, "--format", "npz", "-o", tmp_path / "g.h5")
    assert code == 2 and "Traceback" not in error
