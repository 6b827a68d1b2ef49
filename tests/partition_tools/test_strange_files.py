"""Files as people have them: each gives the right graph, or one line with what helps."""

import bz2
import gzip
import lzma
import os

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from hpcgnn.errors import FormatError, GraphError
from hpcgnn.graphfile.storage import GraphFile
from partition_tools.__main__ import main
from partition_tools.cli.import_graph import import_graph
from partition_tools.readers.tables.tables import TableOptions

EDGES = "src,dst\n0,1\n1,2\n2,0\n"


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("e.csv.xz", lzma.compress(EDGES.encode()), r"compressed by xz.*unpack it: unxz -k '.*a b, c/e\.csv\.xz'"),
        ("e.csv", bz2.compress(EDGES.encode()), r"compressed by bzip2.*mv '.*e\.csv' '.*e\.csv\.bz2'; bunzip2 -k"),
        ("e.csv.zst", b"\x28\xb5\x2f\xfd" + bytes(9), "compressed by zstd.*unzstd"),
        ("e.csv.zip", b"PK\x03\x04" + bytes(9), "an archive of zip.*unzip"),
        ("e.csv", gzip.compress(EDGES.encode()), r"compressed by gzip; its name must say so: mv '.*' '.*e\.csv\.gz'"),
        ("e.csv.gz", EDGES.encode(), r"is not compressed.*mv '.*e\.csv\.gz' '.*e\.csv'"),
        ("e.csv", b"src;dst\n0;1\n", r"separated by ';'.*tr ';' ',' < '.*e\.csv' > commas\.csv"),
        ("e.csv", b"src,dst,\n0,1,\n", r"what \(no name\) means is not known"),
        ("e.csv", b"src,dst\n0,0,1\n1,1,2\n", r"more columns than the heading \(src, dst\)"),
        ("e.csv", b"", "e has no edges, and no table says which nodes there are"),
        ("e.csv", b"src,dst\n", "e has no edges, and no table says which nodes there are"),
        ("e.csv", EDGES.encode("utf-16"), r"text in UTF-16, expected UTF-8; convert it: iconv"),
        ("e.csv", b"src,dst\n0,1\n\0\n1,2\n", "has a byte 0; expected text in UTF-8"),
        ("e.txt", b"0->1\n1->2\n", r"has one column \(0->1\), expected at least a source and a destination"),
        ("e.edgelist", b"0 1 {}\n1 2 {}\n", r"what the third is.*--edge-columns src,dst,weight \(_: ignored\)"),
        ("e.csv", b"src,dst\n-1,0\n0,1\n", "edge 0 has source -1, outside the nodes 0..1"),
        ("e.csv", b":START_ID,:END_ID,:TYPE\n0,1,\n", "edge 0, .*has no type"),
        ("e.csv", b"Source,Target,Type,Id,Label,Weight\n0,1,Undirected,0,,1\n", "what Id, Label means is not known"),
        ("e.json", b'{"nodes": [], "links": []}', r"a file of JSON.*networkx\.node_link_graph\(json\.load\(open\("),
        ("e.jsonl", b'{"src": 0, "dst": 1}', r"JSON lines.*pandas\.read_json\('.*e\.jsonl', lines=True\)\.to_csv"),
        ("e.net", b"*Vertices 2", r"a file of Pajek.*networkx\.read_pajek\('"),
        ("e.adjlist", b"0 1 2", r"adjacency lists.*networkx\.read_adjlist\('"),
        ("e.gv", b"graph {a--b}", r"Graphviz.*networkx\.nx_pydot\.read_dot\('"),
        ("e.csv", b"src,dst\n5,0,1\n3,1,2\n", r"more columns than the heading \(src, dst\)"),
    ],
)
def test_a_list_of_edges_is_refused_in_one_line(tmp_path, name, content, expected):
    folder = tmp_path / "a b, c"
    folder.mkdir()
    (folder / name).write_bytes(content)
    with pytest.raises((FormatError, GraphError), match=expected) as raised:
        import_graph(folder / name, tmp_path / "g.h5")
    assert "\n" not in str(raised.value)


def test_a_table_with_decimal_commas_is_refused(tmp_path):
    """Its rows have more columns than its heading; pandas 3 takes the first for the numbers of rows."""
    (tmp_path / "e.csv").write_text(EDGES)
    (tmp_path / "f.csv").write_text("id,a,b\n0,0,5,1\n1,0,5,2\n2,1,5,3\n")
    with pytest.raises(FormatError, match=r"f\.csv: the rows have more columns than the heading \(id, a, b\)"):
        import_graph(tmp_path / "e.csv", tmp_path / "g.h5", tables=TableOptions(features=tmp_path / "f.csv"))


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (
            {"x": np.eye(5)[:4, :3]},
            "features have 4 rows, expected one for each of the 5 nodes that labels and masks have",
        ),
        ({"x": np.ones((2, 5))}, "turn them: features.T"),
        ({"edge_index": np.array([[1, 2], [2, 5]])}, "they seem to count from 1: subtract 1"),
        ({"edges": None}, "neither edge_index.*--rename OLD=NEW"),
        (
            {"edge_index": np.array([[0.0, 1], [1, 2]])},
            r"g\.npz: ends of edges must be integers, got float64; .*astype",
        ),
        (
            {"edge_index": np.eye(5)},
            r"\(2, E\), got \(5, 5\); of a matrix.*numpy\.stack\(numpy\.nonzero\(edge_index\)\)",
        ),
        ({"edges": None, "adj": np.eye(5)}, r"it has .*numpy\.nonzero\(adj\)"),
        ({"train_mask": np.ones(5)}, r"a vector of booleans, got float64\(5,\): train_mask\.astype\(bool\)"),
        ({"y": np.array(["2020-01-01"] * 5, "datetime64[D]")}, r"labels must be numbers, got datetime64\[D\]"),
        ({"x": np.where(np.eye(5) > 0, np.inf, 0)}, "node 0 has a feature that is NaN or infinite"),
    ],
)
def test_arrays_are_refused_by_what_is_wrong(tmp_path, changed, expected):
    masks = {f"{name}_mask": np.arange(5) % 3 == place for place, name in enumerate(("train", "val", "test"))}
    arrays = {"edge_index": np.array([[0, 1], [1, 2]]), "x": np.eye(5), "y": np.arange(5) % 2, **masks} | changed
    if "edges" in changed:
        arrays["edges"] = arrays.pop("edge_index")
    np.savez(tmp_path / "g.npz", **arrays)
    with pytest.raises((FormatError, GraphError), match=expected):
        import_graph(tmp_path / "g.npz", tmp_path / "g.h5")


def test_archives_of_matrices(tmp_path):
    """adj_ and attr_ in CSR form, as Shchur et al. publish their data sets, are the graph of plain arrays."""
    weights = np.array([1.0, 2.0, 1.0])
    csr = sparse.csr_matrix((weights, ([0, 0, 2], [1, 2, 1])), (3, 3))
    x = sparse.csr_matrix(np.array([[0, 1.5], [2, 0], [0, 0]]))
    for name, of in (("weighted", csr), ("plain", (csr > 0).astype(float))):
        parts = {
            f"{what}_{part}": getattr(matrix, part)
            for what, matrix in (("adj", of), ("attr", x))
            for part in ("indptr", "indices", "data", "shape")
        }
        np.savez(tmp_path / f"{name}.npz", **parts, labels=np.arange(3))
        given = {"edge_weight": weights} if name == "weighted" else {}
        np.savez(tmp_path / "e.npz", edge_index=[[0, 0, 2], [1, 2, 1]], x=x.toarray(), y=np.arange(3), **given)
        found, expected = (
            import_graph(tmp_path / f"{each}.npz", tmp_path / f"{each}-{name}.h5") for each in (name, "e")
        )
        for part in ("indptr", "indices", "weight"):
            np.testing.assert_array_equal(getattr(found.edges, part), getattr(expected.edges, part))
        dense = sparse.csr_matrix(
            (found.features.data, found.features.indices, found.features.indptr), (3, 2)
        ).toarray()
        np.testing.assert_array_equal(dense, expected.features[0:3])
        np.testing.assert_array_equal(found.labels, expected.labels)
    np.savez(tmp_path / "bad.npz", **parts | {"adj_shape": (3, 2)})
    with pytest.raises(FormatError, match="a square matrix by rows, got 3 rows, 2 columns, 3 entries"):
        import_graph(tmp_path / "bad.npz", tmp_path / "bad.h5")


def test_lists_in_a_column_are_its_columns(tmp_path):
    """Vectors as Spark and GraphStorm store them in Parquet, beside a column of numbers."""
    (tmp_path / "e.csv").write_text(EDGES)
    rows = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    tables = TableOptions(features=tmp_path / "f.parquet")
    pd.DataFrame({"id": [2, 0, 1], "age": [7, 8, 9], "emb": rows}).to_parquet(tables.features)
    data = import_graph(tmp_path / "e.csv", tmp_path / "g.h5", tables=tables)
    np.testing.assert_array_equal(data.features[0:3], [[8, 3, 4], [9, 5, 6], [7, 1, 2]])
    for other, expected in (([3.0], "1 numbers in row 1"), (None, "none in row 1")):
        pd.DataFrame({"id": [2, 0, 1], "emb": [rows[0], other, rows[2]]}).to_parquet(tables.features)
        with pytest.raises(FormatError, match=f"column emb has 2 numbers in row 0 and {expected}"):
            import_graph(tmp_path / "e.csv", tmp_path / "g2.h5", tables=tables)


def test_texts_that_are_read(tmp_path):
    """Line ends of old Macs, quotes, empty lines, blanks of several kinds, ids with a point: one graph."""
    texts = ["src,dst\r0,1\r1,2\r", '"src","dst"\n"0","1"\n"1","2"\n', "src,dst\n0,1\n\n\n1,2\n"]
    found = []
    for number, text in enumerate([*texts, "# one\n% other\n0   1\n1\t2\n", "src,dst\n0.0,1.0\n1.0,2.0\n"]):
        (tmp_path / f"{number}.csv").write_bytes(text.encode())
        found.append(import_graph(tmp_path / f"{number}.csv", tmp_path / f"{number}.h5").uuid)
    assert len(set(found)) == 1


def test_names_that_are_no_text_and_a_folder_that_is_gone(tmp_path, monkeypatch, capsys):
    path = os.fsencode(tmp_path) + b"/b\xff.csv"
    with open(path, "wb") as file:
        file.write(EDGES.encode())
    import_graph(os.fsdecode(path), tmp_path / "g.h5")
    with GraphFile(tmp_path / "g.h5") as file:
        assert file.meta.source == "b?"

    def gone():
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(os, "getcwd", gone)
    assert main(["inspect", str(tmp_path / "g.h5")]) == 2
    assert "error: the current directory is gone" in capsys.readouterr().err
