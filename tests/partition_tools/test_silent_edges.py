"""What an import once took for granted without a word, found by reading it with bad intentions."""

import numpy as np
import pytest

from hpcgnn.graph.sums import weight_sums

PATH = np.array([[0, 1, 2], [1, 2, 0]])


@pytest.mark.parametrize("name", ["w", "type", "ntype", "etype", "wgt", "kind"])
def test_weights_and_types_under_other_names(fails, tmp_path, name):
    np.savez(tmp_path / "g.npz", edge_index=PATH, x=np.ones((3, 2)), y=[0, 1, 1], **{name: np.arange(3)})
    assert f"holds {name}, which is not read" in fails("import", tmp_path / "g.npz", "-o", tmp_path / "g.h5")


@pytest.fixture
def edges(tmp_path):
    (tmp_path / "e.txt").write_text("0 1\n1 2\n2 0\n")
    return tmp_path / "e.txt"


def test_ids_that_are_not_the_first_column(fails, tmp_path, edges):
    """They became a feature, and the rows stayed in the order of the file."""
    (tmp_path / "f.csv").write_text("f0,id\n1.5,0\n2.5,2\n3.5,1\n")
    said = fails("import", edges, "-o", tmp_path / "g.h5", "--features", tmp_path / "f.csv")
    assert "column id is not the first" in said


def test_words_that_name_ends_and_are_ids(fails, cli, tmp_path):
    """The first edge was lost as a heading."""
    (tmp_path / "e.csv").write_text("u,v\nv,w\nw,u\n")
    target = tmp_path / "g.h5"
    assert "--no-heading" in fails("import", tmp_path / "e.csv", "-o", target, "--relabel")
    code, said, _ = cli("import", tmp_path / "e.csv", "-o", target, "--relabel", "--no-heading")
    assert code == 0 and "3 directed edges" in said


def test_an_empty_first_row(fails, tmp_path, edges):
    """It was skipped, and all rows were those of the node before."""
    (tmp_path / "y.csv").write_text("\n0\n1\n1\n")
    assert "begins with an empty line" in fails(
        "import", edges, "-o", tmp_path / "g.h5", "--labels", tmp_path / "y.csv"
    )


def test_a_class_with_the_name_of_nothing(cli, tmp_path, edges):
    (tmp_path / "y.csv").write_text("id,label\n0,NA\n1,b\n2,c\n")
    code, _, err = cli("import", edges, "-o", tmp_path / "g.h5", "--labels", tmp_path / "y.csv")
    assert code == 0 and "1 rows have no label" in err


def test_names_say_how_many_classes_there_are(cli, tmp_path):
    """A subgraph has few of them."""
    names = [f"class {number}" for number in range(40)]
    np.savez(tmp_path / "g.npz", edge_index=PATH, x=np.ones((3, 2)), y=[0, 1, 1], class_names=names)
    code, said, err = cli("import", tmp_path / "g.npz", "-o", tmp_path / "g.h5")
    assert code == 0 and "40 classes" in said, err


def test_the_numbers_of_rows_that_pandas_writes(cli, tmp_path):
    (tmp_path / "e.csv").write_text(",src,dst\n0,0,1\n1,1,2\n")
    code, said, err = cli("import", tmp_path / "e.csv", "-o", tmp_path / "g.h5")
    assert code == 0 and "2 directed edges" in said, err


def test_a_small_sum_of_large_weights_is_a_sum():
    """What cancels but for the rounding of float32 is 0, and nothing else."""
    rows = np.zeros(3, np.int64)
    assert weight_sums(rows, np.array([1e7, -1e7, 10], np.float32), 1) == [10.0]
    assert weight_sums(rows, np.array([0.1, 0.2, -0.3], np.float32), 1) == [0.0]
