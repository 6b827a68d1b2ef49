"""Formats of other programs and libraries: SciPy's matrices, METIS's graphs, Parquet."""

import networkx
import numpy as np
import pytest
import scipy.sparse
from partition_helpers import edge_list, node_data, odd_graph, view

from hpcgnn.graphfile.storage import GraphFile

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
    assert cli("import", "--format", "scipy", tmp_path / "a.npz", "-o", tmp_path / "g.h5")[0] == 0
    assert not view(tmp_path / "g.h5").meta.weighted and view(tmp_path / "g.h5").meta.num_nodes == 4
    scipy.sparse.save_npz(tmp_path / "b.npz", scipy.sparse.eye(3, 4))
    assert "(3, 4); expected a real square one" in fails("import", tmp_path / "b.npz", "-o", tmp_path / "h.h5")
    (tmp_path / "c.npz").write_bytes((tmp_path / "a.npz").read_bytes()[:200])
    assert "not a readable" in fails("import", "--format", "scipy", tmp_path / "c.npz", "-o", tmp_path / "h.h5")


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
        ("0 0\n", "has no edges, and no table says which nodes there are"),
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


def test_parquet_with_words_for_ids(cli, fails, tmp_path, pandas):
    frame = pandas.DataFrame({"source": ["ann", "bob"], "target": ["bob", "eve"], "what": [0, 1]})
    frame.to_parquet(tmp_path / "e.parquet")
    assert "what" in fails("import", tmp_path / "e.parquet", "-o", tmp_path / "g.h5")
    columns = ("--set", "edges.columns=src,dst,type")
    assert "--relabel" in fails("import", tmp_path / "e.parquet", "-o", tmp_path / "g.h5", *columns)
    assert cli("import", tmp_path / "e.parquet", "-o", tmp_path / "g.h5", *columns, "--relabel")[0] == 0
    assert view(tmp_path / "g.h5").edges == edge_list([0, 1], [1, 2], kind=[0, 1])
    (tmp_path / "f.parquet").write_bytes(b"something")
    assert "not a readable Parquet file" in fails("import", tmp_path / "f.parquet", "-o", tmp_path / "h.h5")
