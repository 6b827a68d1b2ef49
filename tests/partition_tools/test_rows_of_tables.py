"""Whose row it is: tables that name nodes, or may, or do not; graphs that name their nodes; masks and splits."""

import networkx
import numpy as np
import pandas as pd
import pytest
from partition_helpers import view

import partition_tools
from hpcgnn.errors import FormatError, GraphError
from hpcgnn.graphfile.storage import GraphFile
from partition_tools.readers.tables.row_keys import DATA, IDS, KEYED, POSITION, ROW_NUMBERS, first_column

EDGES = "src,dst\n0,1\n1,2\n2,3\n3,0\n"
RING = np.array([[0, 1, 2, 3], [1, 2, 3, 0]])


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "e.csv").write_text(EDGES)
    return tmp_path


def words(folder, *more):
    return ("import", folder / "e.csv", "-o", folder / "g.h5", "--force", *more)


def ids_of(path):
    with GraphFile(path) as file:
        if "original/id" in file:
            return file.read("original/id").tolist()
        if "original/id_text" not in file:
            return None
        offsets, text = file.read("original/id_offsets"), bytes(file.read("original/id_text"))
        return [text[a:b].decode() for a, b in zip(offsets, offsets[1:])]


INDEX_NAMES = "id node index nid idx vid uid guid node_index nodeId userid paperid paper_id id:ID :ID".split()


@pytest.mark.parametrize("name", INDEX_NAMES)
def test_a_column_that_names_nodes(cli, folder, name):
    """Rows under nid, userid or index went in the order of the file, to the wrong nodes."""
    (folder / "f.csv").write_text(f"{name},f0\n3,0.75\n1,0.25\n0,0.0\n2,0.5\n")
    code, _, err = cli(*words(folder, "--features", folder / "f.csv"))
    assert code == 0 and f"rows keyed by {name}" in err
    np.testing.assert_array_equal(view(folder / "g.h5").features[:, 0], [0, 0.25, 0.5, 0.75])


@pytest.mark.parametrize(
    "table", ["paper,f0\n3,7\n1,3\n0,1\n2,5\n", "3 7\n1 3\n0 1\n2 5\n", "name,f0\na,1\nb,2\nc,3\nd,4\n"]
)
def test_a_column_that_may_name_nodes_asks(cli, fails, folder, table):
    (folder / "f.csv").write_text(table)
    error = fails(*words(folder, "--features", folder / "f.csv"))
    assert "--rows id" in error and "--rows position" in error
    if "name" not in table:
        assert cli(*words(folder, "--features", folder / "f.csv", "--rows", "position"))[0] == 0
        np.testing.assert_array_equal(view(folder / "g.h5").features, [[3, 7], [1, 3], [0, 1], [2, 5]])
        assert cli(*words(folder, "--features", folder / "f.csv", "--rows", "id"))[0] == 0
        np.testing.assert_array_equal(view(folder / "g.h5").features, [[1], [3], [5], [7]])


def test_row_numbers_are_neither_ids_nor_features(cli, fails, folder):
    """What DataFrame.to_csv puts before the first column was a feature, easy to learn by heart."""
    (folder / "f.csv").write_text(",f0,f1\n0,1,2\n1,3,4\n2,5,6\n3,7,8\n")
    code, _, err = cli(*words(folder, "--features", folder / "f.csv"))
    assert code == 0 and "rows in node order, without the column of row numbers" in err
    np.testing.assert_array_equal(view(folder / "g.h5").features, [[1, 2], [3, 4], [5, 6], [7, 8]])
    (folder / "f.csv").write_text(",id,f0\n0,3,7\n1,1,3\n2,0,1\n3,2,5\n")
    code, _, err = cli(*words(folder, "--features", folder / "f.csv"))
    assert code == 0 and "keyed by id" in err
    np.testing.assert_array_equal(view(folder / "g.h5").features, [[1], [3], [5], [7]])
    (folder / "f.csv").write_text(",id,f0\n0,03,7\n1,01,3\n2,00,1\n3,02,5\n")  # ids as they are written
    assert "are one number but two texts" in fails(*words(folder, "--features", folder / "f.csv", "--relabel"))
    (folder / "f.csv").write_text(",f0\n3,7\n1,3\n0,1\n2,5\n")  # an index of its own
    assert cli(*words(folder, "--features", folder / "f.csv"))[0] == 0
    np.testing.assert_array_equal(view(folder / "g.h5").features, [[1], [3], [5], [7]])
    (folder / "f.csv").write_text(",f0\n3,7\n3,3\n0,1\n2,5\n")
    assert "no name" in fails(*words(folder, "--features", folder / "f.csv"))


@pytest.mark.parametrize(
    "names, values, others, rows, expected",
    [
        (["id", "x"], [5, 5], 1, "auto", IDS),
        (["x", "y"], [0.5, 1.5, 2.5, 3.5], 1, "auto", DATA),
        (["x", "y"], [2, 0, 1], 1, "auto", DATA),  # three rows may count by chance
        (["x"], [3, 1, 0, 2], 0, "auto", DATA),  # a table without anything else
        (["index", "y"], [1, 1, 2, 2], 1, "auto", IDS),
        (["valid", "y"], [1, 0, 1, 1], 1, "auto", DATA),
        (["id", "x"], [1, 0], 1, POSITION, ROW_NUMBERS),
        (["", "x"], [1, 0], 1, POSITION, ROW_NUMBERS),
        (["x", "y"], [7, 9], 1, KEYED, IDS),
        (None, [4, 4, 1, 0], 1, "auto", DATA),
    ],
)
def test_first_column(tmp_path, names, values, others, rows, expected):
    assert first_column(tmp_path, names, np.array(values), others, rows) == expected


def test_an_index_in_parquet(cli, folder):
    """pandas keeps the index of a DataFrame in the file, where a reader of columns does not see it."""
    frame = pd.DataFrame({"f0": [0.75, 0.25, 0.0, 0.5]}, index=pd.Index([3, 1, 0, 2], name="node"))
    for index in ("node", None, "anything"):
        frame.rename_axis(index).to_parquet(folder / "f.parquet")
        code, _, err = cli(
            *words(folder, "--features", folder / "f.parquet", "--rows", "id" if index == "anything" else "auto")
        )
        assert code == 0 and "rows keyed by" in err
        np.testing.assert_array_equal(view(folder / "g.h5").features[:, 0], [0, 0.25, 0.5, 0.75])


def test_networkx_keeps_the_names(tmp_path):
    partition_tools.from_networkx(networkx.Graph([("b", "a"), ("a", "c")]), tmp_path / "g.h5")
    assert ids_of(tmp_path / "g.h5") == ["b", "a", "c"]
    partition_tools.from_networkx(networkx.Graph([(7, 5)]), tmp_path / "g.h5", force=True)
    assert ids_of(tmp_path / "g.h5") == [7, 5]
    partition_tools.from_networkx(networkx.grid_graph((2, 2)), tmp_path / "g.h5", force=True)
    assert ids_of(tmp_path / "g.h5")[0] == "(0, 0)"
    partition_tools.from_networkx(networkx.path_graph(3), tmp_path / "g.h5", force=True)
    assert ids_of(tmp_path / "g.h5") is None


def test_an_index_of_pandas(tmp_path):
    """numpy.asarray drops the index, and the rows go to other nodes."""
    frame = pd.DataFrame({"a": [3.0, 1.0, 0.0, 2.0]}, index=[3, 1, 0, 2])
    labels = pd.Series([1, 0, 0, 1], index=[3, 2, 1, 0])
    mask = pd.Series([True, False, False, False], index=[2, 3, 0, 1])
    partition_tools.save_graph(tmp_path / "g.h5", RING, frame, labels, {"train": mask})
    seen = view(tmp_path / "g.h5")
    assert seen.features[:, 0].tolist() == [0, 1, 2, 3] and seen.labels.tolist() == [1, 0, 0, 1]
    assert seen.split.tolist() == [0, 0, 1, 0]
    words = frame.set_axis(list("dbac"))
    with pytest.raises(FormatError, match="index .d, b, a, .* names nodes"):
        partition_tools.save_graph(tmp_path / "h.h5", RING, words)
    ends = np.array(list("abcd"))[RING]
    partition_tools.save_graph(tmp_path / "h.h5", ends, words, node_ids=list("abcd"))
    assert view(tmp_path / "h.h5").features[:, 0].tolist() == [0, 1, 2, 3]
    with pytest.raises(FormatError, match="does not have"):
        partition_tools.save_graph(tmp_path / "i.h5", ends, words.rename({"a": "x"}), node_ids=list("abcd"))
    with pytest.raises(FormatError, match="has a column id"):
        partition_tools.save_graph(tmp_path / "i.h5", RING, frame.assign(b=1.0).rename(columns={"a": "id"}))


def test_a_mask_of_integers_is_no_list_of_nodes(tmp_path):
    mask = np.array([0, 1, 1, 0])
    for split in ({"train": mask}, {"train": mask.astype("u1")}, {"val": [1, 0, 0, 0]}):
        with pytest.raises(GraphError, match="may be a mask or a list of ids"):
            partition_tools.save_graph(tmp_path / "g.h5", RING, split=split)
    partition_tools.save_graph(tmp_path / "g.h5", RING, labels=[0, 1, 0, 1], split={"train": mask.astype(bool)})
    assert view(tmp_path / "g.h5").split.tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize(
    "table, expected",
    [
        ("id,test_mask\n2,1\n3,1\n", [0, 0, 3, 3]),
        ("id,is_test\n0,1\n1,0\n", [3, 0, 0, 0]),
        ("id,isTrain\n0,True\n1,False\n", [1, 0, 0, 0]),
        ("id,val\n0,\n1,\n2,1\n3,1\n", [0, 0, 2, 2]),
        ("id,train_mask,val_mask,test_mask\n0,1,0,0\n1,0,1,0\n2,0,0,1\n3,0,0,0\n", [1, 2, 3, 0]),
        ("train,test\n1,0\n0,0\n0,1\n0,1\n", [1, 0, 3, 3]),
        ("id,split\n0,1\n1,2\n2,3\n", [1, 2, 3, 0]),
        ("id,fold\n0,train\n1,val\n2,test\n", [1, 2, 3, 0]),
    ],
)
def test_splits_by_the_name_of_the_column(cli, folder, table, expected):
    """The 1 of test_mask was taken for train."""
    (folder / "y.csv").write_text("id,label\n0,0\n1,1\n2,0\n3,1\n")
    (folder / "s.csv").write_text(table)
    code, _, err = cli(*words(folder, "--labels", folder / "y.csv", "--splits", folder / "s.csv"))
    assert code == 0, err
    assert view(folder / "g.h5").split.tolist() == expected


@pytest.mark.parametrize(
    "table, message",
    [
        ("id,fold\n0,1\n1,2\n2,3\n", "in the column fold mean is not known"),
        ("id,test_mask\n0,2\n", "test_mask mean is not known"),
        ("id,train_mask,test_mask\n0,1,1\n", "in two splits"),
        ("id,test,test_mask\n0,1,1\n", "two columns for one split"),
        ("id,cluster\n0,7\n", "cluster mean is not known"),
    ],
)
def test_columns_that_say_no_split(fails, folder, table, message):
    (folder / "s.csv").write_text(table)
    assert message in fails("import", folder / "e.csv", "-o", folder / "n.h5", "--splits", folder / "s.csv")


def test_ids_in_an_archive(cli, fails, tmp_path):
    """The edges of an archive name rows; ids are what the rows are called, unless both readings are possible."""
    run = ("import", tmp_path / "g.npz", "-o", tmp_path / "g.h5", "--force")
    np.savez(tmp_path / "g.npz", edge_index=RING, node_ids=[30, 10, 20, 40])
    assert cli(*run)[0] == 0 and ids_of(tmp_path / "g.h5") == [30, 10, 20, 40]
    np.savez(tmp_path / "g.npz", edge_index=RING, node_ids=[3, 1, 0, 2])
    assert "name ids or rows" in fails(*run)
    np.savez(tmp_path / "g.npz", edge_index=RING, n_id=[3, 1, 0, 2])
    assert cli(*run)[0] == 0 and ids_of(tmp_path / "g.h5") == [3, 1, 0, 2]
    np.savez(tmp_path / "g.npz", edge_index=RING, x=np.ones((4, 1)), node_ids=[3, 1])
    assert "2 ids of nodes" in fails(*run)


def test_ids_that_never_occur(cli, folder):
    (folder / "y.csv").write_text("id,label\n0,1\n1,0\n2,1\n3,0\n7,1\n")
    _, _, err = cli(*words(folder, "--labels", folder / "y.csv"))
    assert "only 5 of the node ids 0..7 occur, and 3 become isolated nodes (4, 5, 6)" in err


@pytest.mark.parametrize("suffix", ["graph", "mtx"])
def test_formats_that_count_from_1(cli, fails, tmp_path, suffix):
    """Ids of a table beside them count from 0 or from 1; a table that may be either would be one node off."""
    (tmp_path / "g.graph").write_text("3 2\n2\n1 3\n2\n")
    (tmp_path / "g.mtx").write_text("%%MatrixMarket matrix coordinate pattern symmetric\n3 3 2\n2 1\n3 2\n")
    run = ("import", tmp_path / f"g.{suffix}", "-o", tmp_path / "g.h5", "--force", "--labels", tmp_path / "y.csv")
    for table, expected in (("id,label\n0,5\n2,1\n", [5, -1, 1]), ("id,label\n1,5\n3,1\n", [5, -1, 1])):
        (tmp_path / "y.csv").write_text(table)
        assert cli(*run)[0] == 0
        assert view(tmp_path / "g.h5").labels.tolist() == expected
    (tmp_path / "y.csv").write_text("id,label\n1,5\n2,1\n")
    assert "from 0, or from 1" in fails(*run)
