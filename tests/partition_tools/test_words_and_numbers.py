"""What is a word and what is a number, in every reader alike."""

import gzip

import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.sparse

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


@pytest.mark.parametrize("source", ["memory", "parquet", "text"])
def test_one_number_in_two_texts_is_no_class(tmp_path, edges, fails, source):
    # Postal codes 01 and 1 are two texts: as classes they would be one, so that all readers refuse them.
    texts, output = ["1", "01", "0", "2"], tmp_path / "g.h5"
    if source == "memory":
        with pytest.raises(HpcgnnError, match="01"):
            partition_tools.save_graph(output, RING, labels=texts)
        return
    table = pd.DataFrame({"id": range(4), "y": texts})
    path = tmp_path / ("l.parquet" if source == "parquet" else "l.csv")
    table.to_parquet(path) if source == "parquet" else table.to_csv(path, index=False)
    assert "01" in fails("import", edges, "--labels", path, "-o", output)


@pytest.mark.parametrize("number", ["1_000", "0x10", "1\u0662"])
def test_what_only_python_takes_for_a_number(edges, fails, number):
    # Python's float takes 1_000 for 1000; in a table it is no number.
    table = edges.with_name("f.csv")
    table.write_text(f"id,a\n0,{number}\n1,2\n2,3\n3,4\n")
    assert "not a number" in fails("import", edges, "--features", table, "-o", edges.with_name("g.h5"))


def test_an_underscore_in_a_class(tmp_path):
    # The class 1_0 is a word, and not the class 10.
    partition_tools.save_graph(tmp_path / "g.h5", RING, labels=["1_0", "2", "0", "2"])
    assert held(tmp_path / "g.h5", "nodes/labels") == [1, 2, 0, 2]  # 0, 1_0, 2 in their sorted order


def test_classes_with_an_exponent(edges, fails):
    # Short codes such as 12E1 are words beside 120; one class for both is a wrong label.
    table = edges.with_name("l.csv")
    table.write_text("id,label\n0,12E1\n1,120\n2,0\n3,1\n")
    fails("import", edges, "--labels", table, "--classes", "200", "-o", edges.with_name("g.h5"))


@pytest.mark.parametrize("dtype", ["M8[D]", "m8[s]"])
def test_times_are_no_features(edges, fails, dtype):
    # A .npy of dates must not become days since 1970 unsaid; save_graph refuses it too.
    table = edges.with_name("f.npy")
    np.save(table, np.arange(4).astype(dtype)[:, None])
    fails("import", edges, "--features", table, "-o", edges.with_name("g.h5"))


def test_complex_features_that_are_sparse(tmp_path):
    # The imaginary part of dense features is refused, and so must be that of sparse ones.
    with pytest.raises(HpcgnnError, match="complex|numbers"):
        partition_tools.save_graph(tmp_path / "g.h5", RING, scipy.sparse.csr_matrix(np.array([[1j], [1], [0], [1]])))


@pytest.mark.parametrize("joined", ["text", "members"])
def test_a_mark_in_the_middle(cli, tmp_path, joined):
    # Two exports joined by cat, or two members of .gz, have a byte order mark each: it is no part of an id.
    parts = [b"\xef\xbb\xbf1,2\n", b"\xef\xbb\xbf2,3\n"]
    path = tmp_path / ("e.csv" if joined == "text" else "e.csv.gz")
    path.write_bytes(b"".join(parts) if joined == "text" else b"".join(map(gzip.compress, parts)))
    code, _, error = cli("import", path, "--relabel", "-o", tmp_path / "g.h5")
    assert code == 2 or held(tmp_path / "g.h5", "original/id") == [1, 2, 3], error


@pytest.mark.parametrize("suffix", ["mtx", "graph"])
@pytest.mark.parametrize("change", [("\n", "\r"), ("\n", "\r\n"), ("", "")], ids=["CR", "CRLF", "BOM"])
def test_line_ends_and_marks_of_matrices(cli, tmp_path, suffix, change):
    # Line ends and a mark are alike in every text format.
    text = "2 1\n2\n1\n" if suffix == "graph" else "%%MatrixMarket matrix coordinate pattern general\n2 2 2\n1 2\n2 1\n"
    mark = "" if change[0] else "\ufeff"
    path = tmp_path / f"g.{suffix}"
    path.write_bytes((mark + text.replace(*change) if change[0] else mark + text).encode())
    code, _, error = cli("import", path, "-o", tmp_path / "g.h5")
    assert code == 0, error
    assert held(tmp_path / "g.h5", "topology/indices") == [1, 0]


def test_blanks_around_ids(tmp_path, cli):
    # " a" and "a" are one node in text and in Parquet, or the file is refused.
    rows = pd.DataFrame({"src": [" a", "b "], "dst": ["a", "b"]})
    rows.to_parquet(tmp_path / "e.parquet")
    (tmp_path / "e.csv").write_text('src,dst\n" a",a\n"b ",b\n')
    counts = []
    for name in ("e.parquet", "e.csv"):
        code, _, _ = cli("import", tmp_path / name, "--relabel", "-o", tmp_path / f"{name}.h5")
        counts.append(len(held(tmp_path / f"{name}.h5", "nodes/labels")) if code == 0 else None)
    assert counts[0] in (None, counts[1])
