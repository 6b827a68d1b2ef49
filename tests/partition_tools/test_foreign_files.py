"""Files that hold a graph in a form that is not read: one line that names the form and how to convert it."""

import gzip
import pickle
import zipfile

import numpy as np
import pytest
import scipy.sparse
from partition_helpers import node_data, odd_graph, save_npz, view

N = 60
SRC, DST = odd_graph()
_, LABELS, MASKS = node_data(N)


def test_a_matrix_of_scipy_is_none_of_numpys(fails, tmp_path):
    scipy.sparse.save_npz(tmp_path / "a.npz", scipy.sparse.random(N, N, 0.1, "csr"))
    assert "--format scipy" in fails("import", tmp_path / "a.npz", "-o", tmp_path / "g.h5", "--format", "npz")


@pytest.mark.parametrize(
    "name, words",
    {
        "g.bin": ("DGL", "from_dgl(dgl.load_graphs("),
        "g.hdf5": ("HDF5", "h5py"),
        "g.pkl": ("pickle", "run code"),
        "g.gml": ("GML", "from_networkx(networkx.read_gml("),
        "g.graphml": ("GraphML", "from_networkx(networkx.read_graphml("),
        "g.npy": ("single numpy array", "edge_index"),
        "g.mat": ("MATLAB", "mmwrite"),
    }.items(),
)
def test_files_of_others(fails, tmp_path, name, words):
    (tmp_path / name).write_bytes(b"something")
    error = fails("import", tmp_path / name, "-o", tmp_path / "out.h5")
    assert all(word in error for word in words), error


def test_a_format_of_earlier_versions(fails, tmp_path):
    (tmp_path / "g.xml").write_bytes(b"something")
    words = ("import", tmp_path / "g.xml", "-o", tmp_path / "out.h5", "--format")
    assert "from_networkx(networkx.read_graphml(" in fails(*words, "graphml")
    assert "from_dgl(dgl.load_graphs(" in fails(*words, "dgl")
    assert "expected one of distdgl, scipy" in fails(*words, "graphmll")


def test_an_archive_of_torch(fails, tmp_path):
    for name in ("data.pt", "data.npz"):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr("data/data.pkl", pickle.dumps({}))
        assert "torch.load" in fails("import", tmp_path / name, "-o", tmp_path / "g.h5", "--format", "npz")


def test_a_graph_file(cli, fails, tmp_path):
    save_npz(tmp_path / "g.npz", SRC, DST, N)
    assert cli("import", tmp_path / "g.npz", "-o", tmp_path / "g.h5")[0] == 0
    assert "graph file already" in fails("import", tmp_path / "g.h5", "-o", tmp_path / "h.h5")


def test_tables_of_others(fails, tmp_path):
    (tmp_path / "e.csv").write_text("0 1\n1 2\n")
    (tmp_path / "x.pt").write_bytes(b"something")
    assert "numpy.save" in fails("import", tmp_path / "e.csv", "-o", tmp_path / "g.h5", "--features", tmp_path / "x.pt")
    np.save(tmp_path / "x.npy", np.array([[1.0], [2.0], [None]]))
    error = fails("import", tmp_path / "e.csv", "-o", tmp_path / "g.h5", "--features", tmp_path / "x.npy")
    assert "allow_pickle=True" in error and "plain array" in error


@pytest.mark.parametrize("name", ["train_idx.csv", "train.csv.gz", "s.npy", "valid_ids.txt", "few.csv"])
def test_a_list_of_nodes_is_no_table_of_splits(fails, tmp_path, name):
    ids = np.array([1, 2, 3]) if name in ("valid_ids.txt", "few.csv") else np.flatnonzero(MASKS["train"])
    np.savetxt(tmp_path / "e.csv", np.stack([SRC, DST], 1), "%d", ",")
    np.save(tmp_path / "y.npy", LABELS)
    if name == "s.npy":
        np.save(tmp_path / name, ids)
    else:
        with (gzip.open if name.endswith("gz") else open)(tmp_path / name, "wt") as file:
            file.write("\n".join(map(str, ids)) + "\n")
    tables = ("--labels", tmp_path / "y.npy", "--splits", tmp_path / name)
    error = fails("import", tmp_path / "e.csv", "-o", tmp_path / "g.h5", *tables)
    assert (
        ("list of node ids" in error and "one row per node" in error)
        or name == "few.csv"
        and "numbers of rows" in error
    )


def test_splits_without_a_heading_lose_no_row(cli, fails, tmp_path):
    """The first line is a split of its own, not a heading; and numbers that could be either code are refused."""
    np.savetxt(tmp_path / "e.csv", np.stack([[0, 1], [1, 2]], 1), "%d", ",")
    (tmp_path / "s.csv").write_text("train\nval\ntest\ntrain\n")
    assert cli("import", tmp_path / "e.csv", "-o", tmp_path / "g.h5", "--splits", tmp_path / "s.csv")[0] == 0
    assert view(tmp_path / "g.h5").split.tolist() == [1, 2, 3, 1]
    (tmp_path / "s.csv").write_text("split\n0\n1\n2\n0\n")
    error = fails("import", tmp_path / "e.csv", "-o", tmp_path / "h.h5", "--splits", tmp_path / "s.csv")
    assert "write words" in error
    (tmp_path / "s.csv").write_text("train\n0\n1\n")
    error = fails("import", tmp_path / "e.csv", "-o", tmp_path / "h.h5", "--splits", tmp_path / "s.csv")
    assert "mixes words and numbers" in error
