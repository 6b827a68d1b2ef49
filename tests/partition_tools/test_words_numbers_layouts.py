"""What is a word and what a number, what is lost on the way to float32, and arrays in another layout than is meant."""

import os
import threading

import numpy as np
import pytest
import scipy.sparse
import torch
from partition_helpers import edge_list, view
from test_rows_of_tables import ids_of

import partition_tools
from hpcgnn.errors import FormatError, GraphError
from partition_tools.canonical.precision import PrecisionLoss
from partition_tools.cli.import_graph import import_graph

RING = np.array([[0, 1, 2, 3], [1, 2, 3, 0]])


def run(folder, name, *more):
    return ("import", folder / name, "-o", folder / "g.h5", "--force", *more)


def test_a_hash_inside_a_field_is_data(cli, tmp_path):
    """C# and C were one class, and lang-C# and lang-C one node."""
    (tmp_path / "e.csv").write_text("# of people\nsrc,dst\nann,lang-C#\nbob,lang-C\neve,http://x.org/v#1\n")
    (tmp_path / "y.csv").write_text("id,label\nann,C#\nbob,C\neve,F#\nlang-C,C\nlang-C#,C#\nhttp://x.org/v#1,F#\n")
    code, _, err = cli(*run(tmp_path, "e.csv", "--relabel", "--labels", tmp_path / "y.csv"))
    seen = view(tmp_path / "g.h5")
    assert code == 0 and "comments" not in err and seen.meta.num_nodes == 6
    assert seen.meta.type_names["classes"] == ["C", "C#", "F#"] and seen.labels.tolist() == [1, 0, 2, 2, 0, 1]


def test_a_row_that_is_a_comment_is_told(cli, tmp_path):
    (tmp_path / "e.csv").write_text('src,dst\na,b\n#tag,b\n"#tag2",b\n')
    _, _, err = cli(*run(tmp_path, "e.csv", "--relabel"))
    assert "1 lines below the first row begin with # or %" in err and view(tmp_path / "g.h5").meta.num_nodes == 3


@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("memory", [1 << 13, 1 << 30])
def test_marks_and_line_ends(tmp_path, ends, mark, memory):
    """A byte order mark before a comment was a heading of four words, and before a split it lost the row."""
    edges = "# made by x\n" + "".join(f"{i % 50} {i * 7 % 50}\n" for i in range(3000))
    (tmp_path / "e.txt").write_bytes((mark + edges).replace("\n", ends).encode())
    (tmp_path / "s.csv").write_bytes((mark + "train\nval\n" + "test\n" * 48).replace("\n", ends).encode())
    data = import_graph(tmp_path / "e.txt", tmp_path / "g.h5", memory=memory)
    assert data.num_nodes == 50 and len(data.edges.indices) == 3000


def test_a_mark_before_the_first_row_of_a_table(cli, tmp_path):
    (tmp_path / "e.csv").write_text("0,1\n1,2\n")
    (tmp_path / "s.csv").write_text("\ufefftrain\nval\ntest\n")
    cli(*run(tmp_path, "e.csv", "--splits", tmp_path / "s.csv"))
    assert view(tmp_path / "g.h5").split.tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    "text, expected",
    [
        ("1e2,7\n100,8\n7,8\n", ["100", "1e2", "7", "8"]),
        ("1e2,2e1\n3e0,1e2\n", ["1e2", "2e1", "3e0"]),
        ("1.0,2\n2.0,1\n", [1, 2]),  # a column that pandas made of floats, for it had a gap once
        ("1.0,2\n2.0,x\n3.0,1\nx,2\n", "one number but two texts"),
        ("01,2\n1,2\n", "one number but two texts"),
        ("9007199254740993.0,5\n9007199254740993,5\n", "one number but two texts"),
    ],
)
def test_ids_as_they_are_written(cli, fails, tmp_path, text, expected):
    (tmp_path / "e.csv").write_text("src,dst\n" + text)
    if isinstance(expected, str):
        assert expected in fails(*run(tmp_path, "e.csv", "--relabel"))
        return
    assert cli(*run(tmp_path, "e.csv", "--relabel"))[0] == 0
    assert ids_of(tmp_path / "g.h5") == expected


def test_classes_in_two_spellings(fails, tmp_path):
    (tmp_path / "e.csv").write_text("0,1\n1,2\n")
    (tmp_path / "y.csv").write_text("label\n01\n1\n2\n")
    assert "01 and 1 are one number but two texts" in fails(*run(tmp_path, "e.csv", "--labels", tmp_path / "y.csv"))


@pytest.mark.parametrize("name", ["e.csv", "y.csv"])
def test_text_that_is_none(fails, tmp_path, name):
    (tmp_path / "e.csv").write_text("0,1\n1,2\n")
    (tmp_path / "y.csv").write_text("label\n0\n1\n1\n")
    (tmp_path / name).write_bytes((tmp_path / name).read_text().encode("utf-16"))
    assert "UTF-16" in fails(*run(tmp_path, "e.csv", "--labels", tmp_path / "y.csv"))
    (tmp_path / name).write_bytes(b"0;1\n1;2\n2;0\n")
    assert "separated by ';'" in fails(*run(tmp_path, "e.csv", "--labels", tmp_path / "y.csv"))
    (tmp_path / name).write_bytes(b"0,1\n1,\0\n2,0\n")
    assert "byte 0" in fails(*run(tmp_path, "e.csv", "--labels", tmp_path / "y.csv"))


@pytest.mark.parametrize("option", [None, "--features", "--node-ids"])
def test_what_can_be_read_once(fails, tmp_path, option):
    """The first lines of a pipe are gone when the rest is read."""
    (tmp_path / "e.csv").write_text("0,1\n1,2\n")
    os.mkfifo(tmp_path / "pipe.csv")
    writer = threading.Thread(target=lambda: os.close(os.open(tmp_path / "pipe.csv", os.O_RDWR)))
    writer.start()
    given = run(tmp_path, "pipe.csv") if option is None else run(tmp_path, "e.csv", option, tmp_path / "pipe.csv")
    assert "can be read only once" in fails(*given)
    writer.join()


def test_what_float32_and_float16_lose(tmp_path, cli):
    (tmp_path / "e.csv").write_text("0,1\n1,2\n")
    (tmp_path / "f.csv").write_text("id,t,a\n0,1700000001,1e-9\n1,1700000002,2e-9\n2,1700000128,0\n")
    _, _, err = cli(*run(tmp_path, "e.csv", "--features", tmp_path / "f.csv"))
    print(err)
    assert "features: 2 whole numbers beyond 16,777,216 change as float32 (columns 0, such as 1700000001" in err
    (tmp_path / "f.csv").write_text("id,a\n0,1e-9\n1,2e-9\n2,3e-9\n")
    _, _, err = cli(*run(tmp_path, "e.csv", "--features", tmp_path / "f.csv", "--feature-dtype", "fp16"))
    assert "3 numbers that are not 0 become 0 as float16" in err and "are one number as float16" in err
    (tmp_path / "e.csv").write_text("src,dst,weight\n0,1,1700000001\n1,2,0.5\n")
    _, _, err = cli(*run(tmp_path, "e.csv"))
    assert "beyond" not in err  # real numbers are rounded, as ever
    (tmp_path / "e.csv").write_text("src,dst,weight\n0,1,1700000001\n1,2,5\n")
    assert "weights of edges: 1 whole numbers" in cli(*run(tmp_path, "e.csv"))[2]


@pytest.mark.parametrize("dtype", [np.int64, np.uint64, np.float64])
def test_losses_are_counted_exactly(dtype):
    """By hand: of 2^24 + 0..7 float32 has the even ones; beyond 2^53 float64 has not all integers either."""
    values = (2**24 + np.arange(8)).astype(dtype).reshape(4, 2)
    loss = PrecisionLoss("x", "node", 2, np.float32)
    for slab in (values[:1], values[1:]):
        loss.add(slab, slab.astype(np.float32))
    assert loss.rounded.tolist() == [0, 4] and loss.example == (0, 1, str(values[0, 1]))
    assert len(loss.warnings()) == 1 and "columns 1," in loss.warnings()[0]
    real = PrecisionLoss("x", "node", 1, np.float32)
    real.add(np.array([[1e9 + 0.3], [0.1]]), np.array([[1e9 + 0.3], [0.1]], np.float32))
    assert not real.warnings()


def test_targets_too_large_to_square(tmp_path):
    targets = np.array([1.0, 2.0, 1e200, 0.5])
    with pytest.raises(GraphError, match="node 2 has a target beyond"):
        partition_tools.save_graph(tmp_path / "g.h5", RING, labels=targets, task="regression")


def test_weights_in_a_column(tmp_path):
    for weight in (np.ones((4, 1)), torch.full((4, 1), 2.0)):
        partition_tools.save_graph(tmp_path / "g.h5", RING, edge_weight=weight, force=True)
        assert view(tmp_path / "g.h5").meta.weighted
    for weight in (np.ones((4, 2)), 1.0, np.float64(2), np.ones(3)):
        with pytest.raises(GraphError, match="one edge weight for each of 4 edges"):
            partition_tools.save_graph(tmp_path / "g.h5", RING, edge_weight=weight, force=True)
    with pytest.raises(GraphError, match="one edge type for each"):
        partition_tools.save_graph(tmp_path / "g.h5", RING, edge_type=3, force=True)


@pytest.mark.parametrize("format", ["csr", "csc", "coo", "lil", "dok", "dia", "bsr"])
def test_formats_of_scipy(tmp_path, format):
    """The blocks of BSR hold zeros that are no entries: a block of 2 x 2 made four edges of one."""
    matrix = scipy.sparse.csr_matrix((np.array([2.0, 3.0, 1.0]), ([0, 1, 2], [1, 2, 3])), (4, 4)).asformat(format)
    partition_tools.from_scipy(matrix, tmp_path / "g.h5")
    assert view(tmp_path / "g.h5").edges == edge_list([0, 1, 2], [1, 2, 3], [2.0, 3.0, 1.0])


def test_a_symmetric_matrix_with_both_triangles(fails, tmp_path):
    """The reader mirrors each entry, so that such an edge was there twice."""
    (tmp_path / "g.mtx").write_text("%%MatrixMarket matrix coordinate pattern symmetric\n3 3 2\n2 1\n1 2\n")
    assert "states that it is symmetric" in fails(*run(tmp_path, "g.mtx"))


@pytest.mark.parametrize("text", ["3 2\n2 3\n1\n2\n", "2 1 001\n2 5\n1 6\n"])
def test_a_graph_of_metis_with_half_an_edge(fails, tmp_path, text):
    (tmp_path / "g.graph").write_text(text)
    assert "expected each edge at both of its ends" in fails(*run(tmp_path, "g.graph"))


def test_several_graphs_in_one_file(fails, tmp_path):
    """The first of a list of Data objects was read, and the others were not."""
    data = pytest.importorskip("torch_geometric.data").Data
    torch.save([data(edge_index=torch.tensor(RING)), data(edge_index=torch.tensor(RING))], tmp_path / "g.pt")
    assert "several graphs" in fails(*run(tmp_path, "g.pt"))


def test_arrays_that_are_not_what_they_seem(tmp_path):
    masked = np.ma.MaskedArray([0, 1, 0, 1], [False, True, False, False])
    with pytest.raises(FormatError, match="masked entries"):
        partition_tools.save_graph(tmp_path / "g.h5", RING, labels=masked)
    with pytest.raises(FormatError, match="structured array"):
        partition_tools.save_graph(tmp_path / "g.h5", RING, np.zeros(4, [("a", float), ("b", float)]))
    big = np.arange(8.0).reshape(4, 2)
    for features in (
        big.astype(">f8"),
        np.asfortranarray(big),
        torch.tensor(big).to_sparse(),
        torch.tensor(big).to_sparse_csr(),
    ):
        partition_tools.save_graph(tmp_path / "g.h5", RING.astype(">i4"), features, force=True)
        np.testing.assert_array_equal(view(tmp_path / "g.h5").features, big)


def test_stated_rows_of_sparse_features(fails, tmp_path):
    np.savez(tmp_path / "g.npz", edge_index=RING, x_indptr=[0, 1, 1, 1, 1], x_indices=[0], x_shape=[5, 2])
    assert "states 5 rows" in fails(*run(tmp_path, "g.npz"))
