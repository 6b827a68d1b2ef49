"""Formats of other programs and libraries: SciPy's matrices, METIS's graphs, Parquet, files of PyG."""

import os
import pickle

import networkx
import numpy as np
import pytest
import scipy.sparse
import torch
from partition_helpers import edge_list, node_data, odd_graph, save_npz, view

from hpcgnn.graphfile.storage import GraphFile
from partition_tools.cli.import_graph import import_graph

N = 60
SRC, DST = odd_graph()
FEATURES, LABELS, MASKS = node_data(N)


@pytest.fixture
def tables(tmp_path):
    """Options with tables of features and labels in node order."""
    np.save(tmp_path / "x.npy", FEATURES)
    np.save(tmp_path / "y.npy", LABELS)
    return ("--features", tmp_path / "x.npy", "--labels", tmp_path / "y.npy")


def uuid(path):
    with GraphFile(path) as file:
        return file.meta.uuid


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "bsr"])
def test_scipy(cli, tmp_path, tables, form):
    matrix = scipy.sparse.random(N, N, 0.1, form, random_state=2)
    scipy.sparse.save_npz(tmp_path / "a.npz", matrix)
    assert cli("import", tmp_path / "a.npz", "-o", tmp_path / "g.h5", *tables)[0] == 0
    seen, entries = view(tmp_path / "g.h5"), matrix.tocoo()
    there = entries.data != 0  # bsr stores whole blocks
    assert [e for e in seen.edges if e[3]] == edge_list(entries.row[there], entries.col[there], entries.data[there])
    np.testing.assert_array_equal(seen.features, FEATURES)
    np.testing.assert_array_equal(seen.labels, LABELS)


def test_scipy_without_weights_and_not_square(cli, fails, tmp_path):
    scipy.sparse.save_npz(tmp_path / "a.npz", scipy.sparse.coo_matrix((np.ones(2), ([0, 1], [1, 2])), (4, 4)))
    assert cli("import", "--from", "scipy", tmp_path / "a.npz", "-o", tmp_path / "g.h5")[0] == 0
    assert not view(tmp_path / "g.h5").meta.weighted and view(tmp_path / "g.h5").meta.num_nodes == 4
    scipy.sparse.save_npz(tmp_path / "b.npz", scipy.sparse.eye(3, 4))
    assert "(3, 4); expected a real square one" in fails("import", tmp_path / "b.npz", "-o", tmp_path / "h.h5")
    (tmp_path / "c.npz").write_bytes((tmp_path / "a.npz").read_bytes()[:200])
    assert "not a readable" in fails("import", "--from", "scipy", tmp_path / "c.npz", "-o", tmp_path / "h.h5")


METIS = {
    "11": ("3 2 11 2", ["1 1 2 5", "1 1 1 5 3 7", "9 9 2 7"]),
    "1": ("3 2 1", ["2 5", "1 5 3 7", "2 7"]),
    "100": ("3 2 100", ["4 2", "4 1 3", "4 2"]),
    "": ("3 2", ["2", "1 3", "2"]),
}


@pytest.mark.parametrize("fmt", METIS)
@pytest.mark.parametrize("block", [1, 100])
def test_metis(cli, tmp_path, monkeypatch, fmt, block):
    monkeypatch.setattr("partition_tools.readers.formats.metis_graph.BLOCK", block)
    head, lines = METIS[fmt]
    (tmp_path / "g.graph").write_text("\n".join(["% made by hand", head, lines[0], "% and more", *lines[1:]]) + "\n")
    code, _, err = cli("import", tmp_path / "g.graph", "-o", tmp_path / "g.h5")
    seen = view(tmp_path / "g.h5")
    assert code == 0 and seen.meta.undirected
    weights = [5, 5, 7, 7] if fmt in ("1", "11") else None
    assert seen.edges == edge_list([0, 1, 1, 2], [1, 0, 2, 1], weights)
    assert ("weights of nodes are not read" in err) == (fmt in ("11", "100"))


def test_metis_with_nodes_alone_and_a_larger_graph(cli, tmp_path, tables):
    graph = networkx.gnm_random_graph(N, 150, seed=1)
    graph.remove_edges_from(list(graph.edges(0)))
    lines = [" ".join(str(other + 1) for other in graph.neighbors(node)) for node in range(N)]
    (tmp_path / "g.graph").write_text("\n".join([f"{N} {graph.number_of_edges()}", *lines]) + "\n\n")
    assert cli("import", tmp_path / "g.graph", "-o", tmp_path / "g.h5", *tables)[0] == 0
    both = [edge for u, v in graph.edges for edge in ((u, v), (v, u))]
    assert view(tmp_path / "g.h5").edges == edge_list(*zip(*both))


@pytest.mark.parametrize(
    "text, words",
    [
        ("0 0\n", "the graph has no nodes; expected at least one"),
        ("", "expected: nodes edges"),
        ("3 x\n1\n", "expected: nodes edges"),
        ("2 1 7\n2\n1\n", "of the digits 0 and 1"),
        ("3 1\n2\n1\n", "states 3 nodes, but 2 lines"),
        ("2 1\n2\n1\n1\n", "states 2 nodes, but 3 lines"),
        ("2 1\n3\n1\n", "node 1 has the neighbour 3"),
        ("2 1\n0\n1\n", "node 1 has the neighbour 0"),
        ("2 2\n2\n1\n", "states 2 edges, so that 4 neighbours"),
        ("2 1 1\n2 1\n1\n", "the line of node 2 has 1 numbers"),
        ("2 1\nb\n1\n", "has a word"),
    ],
)
def test_metis_that_is_wrong(fails, tmp_path, text, words):
    (tmp_path / "g.graph").write_text(text)
    assert words in fails("import", tmp_path / "g.graph", "-o", tmp_path / "g.h5")


@pytest.fixture
def pandas():
    pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'hpcgnn[parquet]'")
    return pytest.importorskip("pandas", reason="pandas is not installed")


def test_parquet(cli, tmp_path, pandas):
    weight = np.random.default_rng(1).random(len(SRC))
    frame = pandas.DataFrame({"weight": weight, "dst": DST, "src": SRC, "time": SRC})
    frame.to_parquet(tmp_path / "e.parquet")
    features = pandas.DataFrame(FEATURES, columns=list("abcde")).iloc[::-1]
    features.insert(0, "id", np.arange(N)[::-1])
    features.to_parquet(tmp_path / "x.parquet", index=False)
    options = ("-o", tmp_path / "g.h5", "--features", tmp_path / "x.parquet", "--edge-columns", "weight,dst,src,_")
    assert cli("import", tmp_path / "e.parquet", *options)[0] == 0
    seen = view(tmp_path / "g.h5")
    assert seen.edges == edge_list(SRC, DST, weight)
    np.testing.assert_array_equal(seen.features, FEATURES)


def test_parquet_with_words_for_ids(cli, fails, tmp_path, pandas):
    frame = pandas.DataFrame({"from": ["ann", "bob"], "to": ["bob", "eve"], "what": [0, 1]})
    frame.to_parquet(tmp_path / "e.parquet")
    assert "what" in fails("import", tmp_path / "e.parquet", "-o", tmp_path / "g.h5")
    columns = ("--edge-columns", "src,dst,type")
    assert "--relabel" in fails("import", tmp_path / "e.parquet", "-o", tmp_path / "g.h5", *columns)
    assert cli("import", tmp_path / "e.parquet", "-o", tmp_path / "g.h5", *columns, "--relabel")[0] == 0
    assert view(tmp_path / "g.h5").edges == edge_list([0, 1], [1, 2], kind=[0, 1])
    (tmp_path / "f.parquet").write_bytes(b"something")
    assert "not a readable Parquet file" in fails("import", tmp_path / "f.parquet", "-o", tmp_path / "h.h5")


def arrays():
    found = {"x": FEATURES, "edge_index": np.stack([SRC, DST]), "y": LABELS}
    found |= {f"{name}_mask": mask for name, mask in MASKS.items()}
    return {name: torch.from_numpy(array) for name, array in found.items()} | {"num_classes": 4}


@pytest.fixture
def expected(tmp_path):
    """The name of the same graph as an .npz."""
    import_graph(save_npz(tmp_path / "same.npz", SRC, DST, N), tmp_path / "same.h5")
    return uuid(tmp_path / "same.h5")


@pytest.mark.parametrize("zipped", [True, False])
def test_a_dict_of_tensors(cli, tmp_path, expected, zipped):
    torch.save(arrays(), tmp_path / "g.pt", _use_new_zipfile_serialization=zipped)
    assert cli("import", tmp_path / "g.pt", "-o", tmp_path / "g.h5")[0] == 0
    assert uuid(tmp_path / "g.h5") == expected


@pytest.mark.parametrize("kind", ["data", "data set", "earlier data set"])
def test_what_pyg_saves(cli, fails, tmp_path, expected, kind):
    Data = pytest.importorskip("torch_geometric.data", reason="PyG is not installed").Data
    data = Data(**arrays())
    saved = {
        "data": data,
        "data set": (data.to_dict(), None, Data),
        "earlier data set": (data, {"x": torch.tensor([0, N])}),
    }
    torch.save(saved[kind], tmp_path / "g.pt")
    assert cli("import", tmp_path / "g.pt", "-o", tmp_path / "g.h5")[0] == 0
    assert uuid(tmp_path / "g.h5") == expected
    data.edge_label = torch.ones(len(SRC), 2)
    torch.save(data, tmp_path / "h.pt")
    assert "--ignore edge_label" in fails("import", tmp_path / "h.pt", "-o", tmp_path / "h.h5")
    torch.save((data, {"x": torch.tensor([0, 5, N])}), tmp_path / "h.pt")
    assert "several graphs" in fails("import", tmp_path / "h.pt", "-o", tmp_path / "h.h5")


class Bad:
    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("zipped", [True, False])
def test_no_code_of_a_file_is_run(fails, tmp_path, zipped):
    torch.save({"edge_index": Bad(tmp_path / "harmed")}, tmp_path / "g.pt", _use_new_zipfile_serialization=zipped)
    error = fails("import", tmp_path / "g.pt", "-o", tmp_path / "g.h5")
    assert "without running code" in error and "mkdir" in error and "torch.load" in error
    with open(tmp_path / "h.pt", "wb") as file:
        pickle.dump(Bad(tmp_path / "harmed"), file)
    fails("import", tmp_path / "h.pt", "-o", tmp_path / "g.h5")
    assert not (tmp_path / "harmed").exists()


def test_files_that_are_none_of_torch(fails, tmp_path):
    (tmp_path / "g.pt").write_bytes(b"something")
    fails("import", tmp_path / "g.pt", "-o", tmp_path / "g.h5")
    torch.save([1, 2], tmp_path / "g.pt")
    assert "expected a Data object of PyG or a dict" in fails("import", tmp_path / "g.pt", "-o", tmp_path / "g.h5")
