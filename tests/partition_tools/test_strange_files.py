"""Files as people have them: each gives the right graph, or one line with what helps."""

import bz2
import gzip
import lzma

import numpy as np
import pytest
from scipy import sparse

from hpcgnn.errors import FormatError, GraphError
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
        ("e.csv", b"src,dst\n5,0,1\n3,1,2\n", r"more columns than the heading \(src, dst\)"),
    ],
)
def test_a_list_of_edges_is_refused_in_one_line(tmp_path, name, content, expected):
    folder = tmp_path / "a b, c"
    folder.mkdir()
    (folder / name).write_bytes(content)
    with pytest.raises(FormatError, match=expected) as raised:
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
