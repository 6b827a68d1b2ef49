"""Whose row is it: names of nodes wherever a source can have them, honoured once or refused."""

import gzip

import h5py
import networkx
import numpy as np
import pandas as pd
import pytest

import partition_tools
from hpcgnn.errors import FormatError, HpcgnnError
from partition_tools.workspace.progress import Reporter

RING = np.array([[0, 1, 2, 3], [1, 2, 3, 0]])
EDGES = "src,dst\n0,1\n1,2\n2,3\n3,0\n"


@pytest.fixture
def edges(tmp_path):
    (tmp_path / "e.csv").write_text(EDGES)
    return tmp_path / "e.csv"


def held(path, name):
    with h5py.File(path) as file:
        return file[name][()].tolist()


def split_of(path, split, **more):
    partition_tools.save_graph(path, labels=[0, 1, 0, 1], split=split, **({"edge_index": RING} | more))
    return held(path, "nodes/split")


def test_a_split_beside_node_ids_names_ids(tmp_path):
    # edge_index and links name the nodes by node_ids; a split that goes by position would train the wrong nodes.
    ids = {"node_ids": [3, 2, 1, 0]}
    try:
        assert split_of(tmp_path / "g.h5", {"train": [0]}, **ids) == [0, 0, 0, 1]
    except HpcgnnError as error:
        assert "train" in str(error)
    assert split_of(tmp_path / "m.h5", {"train": np.array([True, False, False, False])}, **ids) == [1, 0, 0, 0]


@pytest.mark.parametrize(
    "option, table, more, words",
    [
        ("features", "id,age,pay\nb,1,2\na,3,nan\nc,1,1", [], "t.csv, column pay: node a has a feature that is NaN"),
        ("features", "id,age\nb,1\na,3", [], "t.csv: node c has no row in the table of features"),
        ("features", "id,age\nb,1\na,3\nb,2\nc,1", [], "t.csv: the features table has two rows for one node (b)"),
        ("labels", "id,kind\nb,1\na,0\nc,1.5", [], "t.csv, column kind: node c has label 1.5"),
        ("labels", "id,x,y\nb,1,0\na,0,2\nc,1,1", [], "t.csv, column y: node a has a label that is neither 0 nor 1"),
        ("labels", "id,pay\nb,1\na,3\nc,inf", ["--task", "regression"], "t.csv, column pay: node c has an infinite"),
        ("node-types", "id,type\nb,0\na,0\nc,-1", [], "t.csv, column type: node c has type -1"),
        ("splits", "id,train,val\nb,1,0\na,0,1\nc,1,1", [], "t.csv: node c is in two splits"),
        (None, "", [], "edge 1, from a to c, has a weight that is not finite"),
    ],
)
def test_a_mistake_names_the_id_the_table_and_the_column(fails, tmp_path, option, table, more, words):
    """The nodes had the numbers that the import gave them, and no table."""
    (tmp_path / "e.csv").write_text(f"src,dst,weight\nb,a,1\na,c,{'inf' if option is None else 1}\n")
    (tmp_path / "t.csv").write_text(table)
    given = [] if option is None else [f"--{option}", tmp_path / "t.csv"]
    assert words in fails("import", tmp_path / "e.csv", "--relabel", *given, *more, "-o", tmp_path / "g.h5")


def test_two_entries_of_one_split(tmp_path):
    # "val" and "valid" are one split: the second must not replace the first unsaid.
    with pytest.raises(HpcgnnError, match="val"):
        split_of(tmp_path / "g.h5", {"val": [1], "valid": [2]})


@pytest.mark.parametrize("nothing", [None, float("nan")])
def test_an_id_that_is_missing(tmp_path, nothing):
    # None in a list of ids is no node called None.
    with pytest.raises(HpcgnnError, match="node_ids|node ids"):
        partition_tools.save_graph(
            tmp_path / "g.h5", [["a"], [str(nothing)]], node_ids=np.array(["a", nothing], object), labels=[0, 1]
        )


@pytest.mark.parametrize("name", ["nid", "index", "userid", "node_ids", "id"])
def test_names_of_nodes_that_come_last(fails, edges, name):
    # A column that names nodes is neither a feature nor to be overlooked, wherever it stands.
    table = edges.with_name("f.csv")
    table.write_text(f"a,{name}\n5,3\n5,1\n6,0\n6,2\n")
    assert name in fails("import", edges, "--features", table, "-o", edges.with_name("g.h5"))


def test_two_columns_of_ids(fails, edges):
    # id,id: one of them would become a feature.
    table = edges.with_name("f.csv")
    table.write_text("id,id,a\n0,3,2\n1,2,2\n2,1,2\n3,0,2\n")
    fails("import", edges, "--features", table, "-o", edges.with_name("g.h5"))


def test_an_index_of_several_levels(fails, edges):
    # pandas writes each level as a column of its own: the second is no feature.
    table = edges.with_name("f.parquet")
    index = pd.MultiIndex.from_tuples([(3, 0), (1, 0), (0, 0), (2, 0)])
    pd.DataFrame({"x": [30.0, 10, 0, 20]}, index=index).to_parquet(table)
    fails("import", edges, "--features", table, "-o", edges.with_name("g.h5"))


@pytest.mark.parametrize(
    "index",
    [[3, 1, 0, 2], pd.Index([3, 1, 0, 2], name="id"), pd.Index([3, 1, 0, 2], name="nid"), pd.RangeIndex(3, -1, -1)],
)
def test_an_index_in_a_file_and_in_memory(cli, edges, index):
    # An index of pandas names the rows, in a file's metadata as in memory.
    values = pd.DataFrame({"x": [float(i) for i in index]}, index=index)
    values.to_parquet(edges.with_name("f.parquet"))
    code, _, error = cli("import", edges, "--features", edges.with_name("f.parquet"), "-o", edges.with_name("g.h5"))
    assert code == 0, error
    assert held(edges.with_name("g.h5"), "nodes/features") == [[0], [1], [2], [3]]
    partition_tools.save_graph(edges.with_name("s.h5"), RING, values, pd.Series([1, 0, 0, 0], index=[3, 1, 0, 2]))
    assert held(edges.with_name("s.h5"), "nodes/features") == [[0], [1], [2], [3]]
    assert held(edges.with_name("s.h5"), "nodes/labels") == [0, 0, 0, 1]


def test_a_mask_by_an_index(tmp_path):
    # A Series of booleans says by its index whose mask it is; a filtered one of integers lists nodes.
    mask = pd.Series([True, False, False, False], index=[3, 1, 0, 2])
    assert split_of(tmp_path / "a.h5", {"train": mask}) == [0, 0, 0, 1]
    assert split_of(tmp_path / "b.h5", {"train": pd.Series([1, 3], index=[7, 9])}) == [0, 1, 0, 1]


def test_split_lists_of_two_columns(fails, tmp_path):
    # train.csv.gz of OGB has one node per line: a second column is no second node.
    raw, split = tmp_path / "d" / "raw", tmp_path / "d" / "split" / "time"
    raw.mkdir(parents=True)
    split.mkdir(parents=True)
    tables = {"edge": "0,1\n1,2\n", "num-node-list": "3\n", "num-edge-list": "2\n", "node-label": "0\n1\n0\n"}
    for name, text in tables.items():
        (raw / f"{name}.csv.gz").write_bytes(gzip.compress(text.encode()))
    for name, text in {"train": "0,2\n", "valid": "1\n", "test": ""}.items():
        (split / f"{name}.csv.gz").write_bytes(gzip.compress(text.encode()))
    fails("import", tmp_path / "d", "-o", tmp_path / "g.h5")


def test_attributes_of_networkx_that_are_not_read(tmp_path):
    # A graph with train_mask on its nodes must not come out without a split, and without a word.
    graph, reporter = networkx.path_graph(4), Reporter()
    networkx.set_node_attributes(graph, {i: i < 2 for i in range(4)}, "train_mask")
    networkx.set_node_attributes(graph, {i: i % 2 for i in range(4)}, "y")
    try:
        partition_tools.from_networkx(graph, tmp_path / "g.h5", reporter=reporter)
    except FormatError as error:
        assert "train_mask" in str(error)
        return
    assert held(tmp_path / "g.h5", "nodes/split") == [1, 1, 0, 0] or "train_mask" in " ".join(reporter.warnings)
