"""Arrays in another shape, dtype, layout or count than they should have: read right, or one line."""

import gzip

import h5py
import networkx
import numpy as np
import pytest
import scipy.sparse
import torch

import partition_tools
from hpcgnn.errors import HpcgnnError

RING = np.array([[0, 1, 2, 3], [1, 2, 3, 0]])


@pytest.fixture
def edges(tmp_path):
    (tmp_path / "e.csv").write_text("src,dst\n0,1\n1,2\n2,3\n3,0\n")
    return tmp_path / "e.csv"


def held(path, name):
    with h5py.File(path) as file:
        return file[name][()].tolist()


@pytest.mark.parametrize("name", ["labels", "node_type", "features", "edge_weight", "edge_type", "edge_features"])
def test_a_single_number(tmp_path, name):
    # A number in place of an array is a mistake, and no TypeError.
    with pytest.raises(HpcgnnError):
        partition_tools.save_graph(tmp_path / "g.h5", RING, **{name: 1})


@pytest.mark.parametrize("shape", [(1, 4), (4, 2)])
def test_weights_that_are_no_column(tmp_path, shape):
    # (E, 1) is a column of weights; anything else of two dimensions is not.
    with pytest.raises(HpcgnnError, match="weight"):
        partition_tools.save_graph(tmp_path / "g.h5", RING, edge_weight=np.ones(shape))
    partition_tools.save_graph(tmp_path / "g.h5", RING, edge_weight=np.array([[1.0], [2], [3], [4]]))
    assert held(tmp_path / "g.h5", "edges/weight") == [4, 1, 2, 3]


def test_labels_in_a_row(tmp_path):
    # y.reshape(1, -1): the message speaks of the labels, and not of an edge.
    with pytest.raises(HpcgnnError, match="label"):
        partition_tools.save_graph(tmp_path / "g.h5", RING, labels=[[0, 1, 0, 1]])


def test_features_of_three_dimensions(edges, fails):
    # A .npy of (n, 2, 2) is no table of 4 columns.
    np.save(edges.with_name("f.npy"), np.arange(16.0).reshape(4, 2, 2))
    fails("import", edges, "--features", edges.with_name("f.npy"), "-o", edges.with_name("g.h5"))


def test_objects_that_are_integers(tmp_path):
    # An array of Python's integers, as pandas makes it, holds labels; None is none.
    try:
        partition_tools.save_graph(tmp_path / "g.h5", RING, labels=np.array([1, 0, None, 0], object))
    except HpcgnnError as error:
        assert "labels" in str(error)
        return
    assert held(tmp_path / "g.h5", "nodes/labels") == [1, 0, -1, 0]


@pytest.mark.parametrize("indices", [[1, 9], [1, -1]])
def test_a_matrix_with_an_entry_outside(tmp_path, fails, indices):
    # Damaged indices of a file of SciPy: one line, no traceback.
    parts = {"shape": [3, 3], "data": np.ones(2), "indices": indices, "indptr": [0, 1, 2, 2]}
    np.savez(tmp_path / "m.npz", format=b"csr", **parts)
    fails("import", tmp_path / "m.npz", "-o", tmp_path / "g.h5")


def test_a_matrix_whose_rows_go_back(tmp_path, fails):
    # Row pointers that fall would make edges that are not in the file.
    np.savez(tmp_path / "m.npz", format=b"csr", shape=[3, 3], data=np.ones(2), indices=[1, 2], indptr=[0, 2, 1, 2])
    fails("import", tmp_path / "m.npz", "-o", tmp_path / "g.h5")


@pytest.mark.parametrize("layout", ["coo", "csr", "csc", "bsr", "dia", "lil", "dok"])
def test_layouts_of_one_matrix(tmp_path, layout):
    # Zeros that fill up a layout (the blocks of BSR) are no edges.
    matrix = scipy.sparse.coo_matrix((np.array([1.0, 2, 3]), ([0, 0, 1], [1, 2, 2])), shape=(4, 4))
    partition_tools.from_scipy(matrix.asformat(layout), tmp_path / "g.h5")
    assert held(tmp_path / "g.h5", "topology/indptr") == [0, 0, 1, 3, 3]
    assert held(tmp_path / "g.h5", "topology/indices") == [0, 0, 1]
    assert held(tmp_path / "g.h5", "edges/weight") == [1, 2, 3]


def test_an_entry_that_stands_twice(tmp_path):
    # SciPy adds entries of one place up: the same matrix as CSR must be the same graph.
    matrix = scipy.sparse.coo_matrix((np.ones(3), ([0, 0, 1], [1, 1, 2])), shape=(3, 3))
    names = set()
    for each in (matrix, matrix.tocsr()):
        try:
            names.add(partition_tools.from_scipy(each, tmp_path / "g.h5", force=True).uuid)
        except HpcgnnError:
            names.add("refused")
    assert len(names - {"refused"}) == 1


@pytest.mark.parametrize("kind", ["quantized", "nested"])
def test_tensors_that_numpy_has_not(tmp_path, fails, kind):
    # Tensors without plain values are refused by name.
    if kind == "nested":
        x = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    else:
        x = torch.quantize_per_tensor(torch.eye(4), 0.1, 0, torch.qint8)
    torch.save({"edge_index": torch.as_tensor(RING), "x": x}, tmp_path / "g.pt")
    fails("import", tmp_path / "g.pt", "-o", tmp_path / "g.h5")


def test_an_argument_that_the_graph_has(tmp_path):
    # from_networkx counts the nodes itself; saying it again is one line.
    with pytest.raises(HpcgnnError, match="num_nodes"):
        partition_tools.from_networkx(networkx.path_graph(3), tmp_path / "g.h5", num_nodes=4)


def test_edges_that_were_lost(tmp_path, fails):
    # num-edge-list of OGB states how many edges there are: a file that was cut and packed again has fewer.
    raw = tmp_path / "d" / "raw"
    raw.mkdir(parents=True)
    tables = {"edge": "0,1\n1,2\n", "num-node-list": "3\n", "num-edge-list": "5\n", "node-label": "0\n1\n0\n"}
    for name, text in tables.items():
        (raw / f"{name}.csv.gz").write_bytes(gzip.compress(text.encode()))
    fails("import", tmp_path / "d", "-o", tmp_path / "g.h5")


@pytest.mark.parametrize(
    "text",
    [
        "%%MatrixMarket matrix coordinate pattern general\n2 2 1\n1 2 9\n",
        "%%MatrixMarket matrix coordinate real skew-symmetric\n2 2 2\n1 1 5\n2 1 2\n",
    ],
)
def test_matrices_that_break_their_header(tmp_path, fails, text):
    # Values in a pattern, and a diagonal in a skew-symmetric matrix, are not what the header says.
    (tmp_path / "m.mtx").write_text(text)
    fails("import", tmp_path / "m.mtx", "-o", tmp_path / "g.h5")
