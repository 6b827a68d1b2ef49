"""Accepted and refused input: each spelling of one small graph gives that graph, each mistake gives one line.

The graph has the edges 0→1, 1→2, 2→3, 3→0; the entry of a spelling holds any difference from it.
"""

import gzip
import os
import pickle

import numpy as np
import polars as pl
import pytest
from partition_helpers import view

import partition_tools
from hpcgnn.errors import FormatError, GraphError
from hpcgnn.graphfile.storage import GraphFile
from partition_tools.cli.import_graph import import_graph
from partition_tools.readers.formats import KEYS, format_of, options_of
from partition_tools.readers.tables.tables import TableOptions
from partition_tools.workspace.settings import values_of
from partition_tools.workspace.working import Resources

EDGES = "0,1\n1,2\n2,3\n3,0\n"
RING = [(1, 0), (2, 1), (3, 2), (0, 3)]
HEADED = "src,dst\n" + EDGES
PLENTY, LITTLE = 1 << 30, 1 << 12


def write(path, content):
    """A file of bytes, of text (packed if its name ends in .gz), of a polars table, or of an array or several."""
    if isinstance(content, pl.DataFrame):
        content.write_parquet(path)
    elif isinstance(content, dict):
        np.savez(path, **content)
    elif isinstance(content, np.ndarray):
        np.save(path, content)
    else:
        data = content.encode() if isinstance(content, str) else content
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" and isinstance(content, str) else data)


def words_of(tmp_path, files, options):
    """The command of an import; the first file is its input, and options name others."""
    for name, content in files.items():
        write(tmp_path / name, content)
    given = []
    for word in options.split():
        name, equals, file = word.rpartition("=")
        given.append(f"{name}{equals}{tmp_path / file}" if file in files else word)
    return ("import", tmp_path / next(iter(files)), "-o", tmp_path / "g.h5", *given)


def named(content, **files):
    """{file: content} of an edge list and of tables, whose names have _ for the dot."""
    return {"e.csv": content} | {name.replace("_", "."): each for name, each in files.items()}


FRAME = pl.DataFrame({"src": [0, 1, 2, 3], "dst": [1, 2, 3, 0]})
LISTS = {
    "csv": ({"e.csv": EDGES}, ""),
    "headed": ({"e.csv": HEADED}, ""),
    "other words, capitals": ({"e.csv": "Source,TARGET\n" + EDGES}, ""),
    "swapped": ({"e.csv": "dst,src\n1,0\n2,1\n3,2\n0,3\n"}, ""),
    "tabs": ({"e.tsv": HEADED.replace(",", "\t")}, ""),
    "blanks": ({"e.txt": EDGES.replace(",", "   ").replace("\n", " \n ")}, ""),
    "blanks around commas": ({"e.csv": HEADED.replace(",", " , ")}, ""),
    "SNAP": ({"e.txt": "# Nodes: 4\n# FromNodeId\tToNodeId\n" + EDGES.replace(",", "\t")}, ""),
    "gzip": ({"e.csv.gz": HEADED}, ""),
    "CRLF": ({"e.csv": HEADED.replace("\n", "\r\n")}, ""),
    "mark": ({"e.csv": "\ufeff" + HEADED}, ""),
    "no end": ({"e.csv": HEADED.rstrip()}, ""),
    "empty lines": ({"e.csv": HEADED.replace("\n", "\n\n")}, ""),
    "quotes": ({"e.csv": HEADED.replace("0,1", '"0","1"')}, ""),
    "zeros and fractions": ({"e.csv": HEADED.replace("3,0", "3.0,00")}, ""),
    "ignored columns": ({"e.csv": "9,0,1\n9,1,2\n9,2,3\n9,3,0\n"}, "--set edges.columns=_,src,dst"),
    "names of ours": ({"e.csv": "a,b\n" + EDGES}, "--set edges.columns=src,dst"),
    "relabelled": ({"e.csv": "10,20\n20,30\n30,99\n99,10\n"}, "--relabel"),
    "words": ({"e.csv": "src,dst\n#a,C\nC,C#\nC#,x\nx,#a\n".replace("#a", '"#a"')}, "--relabel"),
    "words without a heading": ({"e.csv": "a,b\nb,c\nc,d\nd,a\n"}, "--relabel --set edges.heading=false"),
    "spelled numbers": ({"e.csv": "src,dst\n007,1e2\n1e2,x y\nx y,z\nz,007\n"}, "--relabel"),
    "parquet": ({"e.parquet": FRAME}, ""),
    "parquet of int32": ({"e.parquet": FRAME.cast(pl.Int32)}, ""),
    "parquet of words": ({"e.parquet": FRAME.cast(pl.String).with_columns(pl.all() + "n")}, "--relabel"),
    "parquet of reals": ({"e.parquet": FRAME.cast(pl.Float64)}, ""),
    "mtx": ({"e.mtx": "%%MatrixMarket matrix coordinate pattern general\n4 4 4\n1 2\n2 3\n3 4\n4 1\n"}, ""),
    "edge_index": ({"g.npz": {"edge_index": np.array([[0, 1, 2, 3], [1, 2, 3, 0]])}}, ""),
    "src and dst": ({"g.npz": {"src": np.arange(4), "dst": np.array([1, 2, 3, 0]), "num_nodes": np.array(4)}}, ""),
}


@pytest.mark.parametrize("memory", [PLENTY, LITTLE])
@pytest.mark.parametrize("name", LISTS)
def test_one_graph_in_every_spelling(tmp_path, name, memory):
    files, options = LISTS[name]
    for file, content in files.items():
        write(tmp_path / file, content)
    path, given = tmp_path / next(iter(files)), values_of([word for word in options.split() if "=" in word], KEYS)
    tables = options_of(format_of(path, None), given | ({"tables.relabel": True} if "--relabel" in options else {}))
    data = import_graph(path, tmp_path / "g.h5", resources=Resources(memory=memory), tables=tables)
    assert data.num_nodes == 4 and sorted((d, s) for d, s, *_ in view(tmp_path / "g.h5").edges) == sorted(RING)


LABELS = "--labels y.csv"
TABLES = {
    "labels by id": (named(HEADED, y_csv="id,label\n3,1\n0,0\n1,1\n2,0\n"), LABELS, {"labels": [0, 1, 0, 1]}),
    "id comes last": (named(HEADED, y_csv="label,id\n1,3\n0,0\n1,1\n0,2\n"), LABELS, {"labels": [0, 1, 0, 1]}),
    "labels in order": (named(HEADED, y_csv="label\n0\n1\n0\n1\n"), LABELS, {"labels": [0, 1, 0, 1]}),
    "words are classes": (named(HEADED, y_csv="id,label\n0,C#\n1,C\n2,C#\n3,\n"), LABELS, {"labels": [1, 0, 1, -1]}),
    "NA is none": (named(HEADED, y_csv="id,label\n0,NA\n1,b\n2,c\n3,b\n"), LABELS, {"labels": [-1, 0, 1, 0]}),
    "ids of text": (
        {"e.csv": "src,dst\nd,a\na,b\n", "y.csv": "id,label\nb,1\na,0\nd,1\n"},
        LABELS + " --relabel",
        {"labels": [0, 1, 1]},
    ),
    "features of Parquet": (
        {"e.csv": HEADED, "x.parquet": pl.DataFrame({"id": [1, 0, 3, 2], "v": [[1.0, 5], [0, 5], [3, 5], [2, 5]]})},
        "--features x.parquet",
        {"features": [[0, 5], [1, 5], [2, 5], [3, 5]]},
    ),
    "features of an array": (
        {"e.csv": HEADED, "x.npy": np.array([[0.5], [1.5], [2.5], [3.5]])},
        "--features x.npy",
        {"features": [[0.5], [1.5], [2.5], [3.5]]},
    ),
    "row numbers": (
        named(HEADED, x_csv="id,f\n3,5\n1,6\n2,7\n0,8\n"),
        "--features x.csv --set tables.rows=position",
        {"features": [[5], [6], [7], [8]]},
    ),
    "ids that are row numbers": (
        {"e.csv": "3 0\n1 2\n", "x.npy": np.eye(4)},
        "--features x.npy --relabel",
        {"features": np.eye(4)},
    ),
    "types by id": (
        named(HEADED, t_csv="# what\nid,type\n3,town\n2,river\n1,road\n0,road\n"),
        "--set tables.node_types=t.csv",
        {"node_type": [1, 1, 0, 2]},
    ),
    "targets": (
        named(HEADED, y_csv="id,price\n3,0.5\n1,0.25\n"),
        LABELS + " --set labels.task=regression",
        {"labels": [np.nan, 0.25, np.nan, 0.5]},
    ),
    "no edges": ({"e.csv": "# nothing\n", "y.npy": np.arange(5)}, "--labels y.npy", {"edges": []}),
    "splits": (named(HEADED, s_csv="split\ntrain\nvalid\n\ntest\n"), "--splits s.csv", {"split": [1, 2, 0, 3]}),
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_go_to_their_nodes(imports, tmp_path, name):
    files, options, expected = TABLES[name]
    _, source, _, _, *words = words_of(tmp_path, files, options)
    if "split" in expected:
        write(tmp_path / "t.csv", "label\n0\n1\n0\n1\n")
        words += ["--labels", tmp_path / "t.csv"]
    seen = imports(source, *words)
    for what, values in expected.items():
        np.testing.assert_array_equal(getattr(seen, what), values)


ARRAYS = {"edge_index": np.array([[0, 1, 2, 3], [1, 2, 3, 0]]), "x": np.ones((4, 1)), "y": np.array([0, 1, 0, 1])}
FEATURES, SPLITS, NODE_TYPES = "--features x.csv", "--splits s.csv", "--set tables.node_types=t.csv"
WORDS = "src,dst\na,b\n"
MATRIX = "%%MatrixMarket matrix coordinate real general\n3 3 2\n"
REFUSED = {
    "comments below": (named(HEADED + "# one\n"), "", "begins with # or % (# one)"),
    "ids with a point": (named("src,dst\n1.0,2.0\n"), "--relabel", "write integers, in one way"),
    "no heading above words": (named(HEADED, y_csv="b\na\nb\na\n"), LABELS, "may be a heading or the word"),
    "no name": (named(HEADED, x_csv=",f\n0,1\n1,2\n2,3\n3,4\n"), FEATURES, "has a column without a name"),
    "masks in a table": (named(HEADED, s_csv="id,train_mask\n0,1\n"), SPLITS, "has the split '1'"),
    "torch": ({"g.pt": "x"}, "", "read it with its library in Python, and give the result to partition_tools.from_pyg"),
    "another name": ({"g.npz": {**ARRAYS, "train": np.zeros(4, bool)}}, "", "holds train, which is not read"),
    "other options": (named(HEADED), "--set arrays.ignore=x", "arrays.ignore is no option of the format edgelist"),
    "no such key": (named(HEADED), "--set edges.column=x", "expected edges.columns=x perhaps"),
    "an old flag": (named(HEADED), "--edge-columns src,dst", "--edge-columns is no option: --set edges.columns=VALUE"),
    "semicolons": (named("src;dst\n0;1\n"), "", "separated by ';'; expected a comma, a tab or blanks"),
    "third column": (named("0,1,5\n"), "", "perhaps weight and type, each once; say what each is"),
    "unknown name": (named("src,dst,time\n0,1,5\n"), "", "'time' is not known; say what each is"),
    "two kinds": (named("userId,movieId\n1,1\n"), "", "'userId' is not known; say what each is"),
    "named words": (named("u,v\nv,w\n"), "--relabel --set edges.columns=src,dst", "edges.heading=true or false"),
    "KONECT": ({"e.txt": "% bip unweighted\n1 1\n"}, "", "nodes of two kinds"),
    "more columns": (named("src,dst\n0,1\n0,1,2\n"), "", "a row has other than 2 columns (src, dst)"),
    "fewer columns": (named("src,dst\n0,1\n0\n"), "", "column dst: edge 1 has no id"),
    "nothing": (named(""), "", "has no edges, and no table says which nodes there are"),
    "UTF-16": (named("src,dst\n0,1\n".encode("utf-16")), "", "expected UTF-8"),
    "zero byte": (named("src,dst\n0,1\n\0\n"), "", "has a byte 0, as UTF-16 has; expected text in UTF-8"),
    "old Mac": (named("src,dst\r0,1\r"), "", "line ends of CR alone; expected text in UTF-8, its lines ending with LF"),
    "joined marks": (named("src,dst\n0,1\n\ufeff1,2\n"), "", "a byte order mark inside"),
    "open quote": (named('src,dst\n"a,b\nc,d"\n'), "--relabel", "a quoted field does not end on its line"),
    "quote behind a blank": (named('src,dst\na, "b"\n'), "--relabel", "has a quote behind a blank"),
    "words": (named("src,dst\nann,bob\n"), "", "ids that are not integers (ann); --relabel numbers words"),
    "Python's number": (named("src,dst\n1_0,2\n"), "", "ids that are not integers (1_0)"),
    "two spellings": (named("src,dst\n1,01\n"), "--relabel", "01 and 1 are one number but two texts"),
    "negative": (named("src,dst\n-1,0\n0,1\n"), "", "edge 0 has source -1, outside the nodes 0..1"),
    "weight": (named("src,dst,weight\n0,1,heavy\n"), "", "has an entry that is not a number: 'heavy'"),
    "dates": (
        {"e.csv": HEADED, "x.parquet": pl.DataFrame({"id": [0, 1, 2, 3]}).with_columns(pl.date(2020, 1, 1))},
        "--features x.parquet",
        "holds Date, expected numbers or words",
    ),
    "short list": (
        {"e.csv": HEADED, "x.parquet": pl.DataFrame({"v": [[1], [1, 2], [1], [1]]})},
        "--features x.parquet",
        "has lists of different lengths",
    ),
    "hidden ids": (named(HEADED, x_csv="a,f\n3,1\n0,2\n2,3\n1,4\n"), FEATURES, "no column id, and 2 columns (a, f)"),
    "two ids": (named(HEADED, x_csv="id,id,f\n0,1,2\n"), FEATURES, "two columns id"),
    "twice": (named(HEADED, y_csv="id,label\n0,1\n0,0\n1,1\n2,1\n3,1\n"), LABELS, "two rows for one node (0)"),
    "missing row": (
        named(HEADED, x_csv="id,f\n0,1\n1,2\n3,4\n"),
        FEATURES,
        "node 2 has no row in the table of features",
    ),
    "no id": (named(HEADED, y_csv="id,label\n0,1\n,0\n"), LABELS, "row 1 has no id"),
    "empty first row": (named(HEADED, y_csv="\n0\n1\n1\n"), LABELS, "begins with an empty line"),
    "relabel by position": (
        named("src,dst\n5,7\n", y_csv="label\n0\n1\n"),
        LABELS + " --relabel",
        "does not say which node a row belongs to",
    ),
    "gzip unsaid": (named(gzip.compress(HEADED.encode())), "", "compressed by gzip; its name must end with .gz"),
    "no gzip": ({"e.csv.gz": HEADED.encode()}, "", "is not compressed by gzip; its name must not end with .gz"),
    "spreadsheet": ({"e.xlsx": "x"}, "", "expected an edge list (.csv, .tsv, .txt, .parquet) with the columns src,dst"),
    "list beyond": ({"g.npz": {**ARRAYS, "train_idx": np.array([9])}}, "", "names a node outside 0..3"),
    "mask or list": ({"g.npz": {**ARRAYS, "train_idx": np.array([0, 1, 1, 0])}}, "", "which may be a mask or a list"),
    "turned features": ({"g.npz": {**ARRAYS, "x": np.ones((3, 4))}}, "", "expected one label (or one row"),
    "no array": ({"e.csv": HEADED, "x.npy": b"\x93NUMPY"}, "--features x.npy", "is not a readable .npy array"),
    "no Parquet": ({"e.parquet": "x"}, "", "not a readable Parquet file"),
    "ids of two spellings": (named(WORDS, y_csv="id,label\nplum,1\n"), LABELS + " --relabel", "written alike"),
    "an empty type": (named(HEADED, t_csv="id,type\n0,a\n1,\n2,a\n3,a\n"), NODE_TYPES, "node 1 has no type"),
    "types of two columns": (named(HEADED, t_npy=np.zeros((4, 2), int)), "--set tables.node_types=t.npy", "one column"),
    "no such column": (named(HEADED), "--set edges.features=colour", "edges.features: expected a column colour"),
    "loops without a row": (
        named("src,dst,size\n0,1,5\n"),
        "--set edges.features=size --set edges.self_loops=add",
        "edges.self_loops=add",
    ),
    "too few rows": (
        named(HEADED, f_npy=np.ones((3, 2))),
        "--set edges.features=f.npy",
        "one row of edge features for each of 4 edges",
    ),
    "no square": ({"m.mtx": "%%MatrixMarket matrix coordinate real general\n2 3 1\n1 3 1.0\n"}, "", "square"),
    "an end that is no number": ({"m.mtx": MATRIX + "1 3 1\n2 1 1e"}, "", "an entry that is not a number: '1e'"),
    "an end of four numbers": ({"m.mtx": MATRIX + "1 3 1\n2 1 1 4"}, "", "a row has other than 3 columns"),
    "no matrix": ({"m.mtx": "not a matrix\n"}, "", "Matrix Market"),
    "no archive": ({"g.npz": b"0 1\n"}, "", "not a readable .npz"),
    "a pickle": ({"g.npz": pickle.dumps({"a": 1})}, "", "not a readable .npz"),
    "fractions": ({"g.npz": ARRAYS}, "--train 0.9 --val 0.2", "sum to at most 1"),
    "a seed": ({"g.npz": ARRAYS}, "--train 0.5 --set split.seed=-1", "seed must be from 0 to 2^63"),
    "no fractions": ({"g.npz": ARRAYS}, "--set split.resplit=true", "split.resplit needs the fractions"),
    "reverse of no types": ({"g.npz": ARRAYS}, "--set edges.add_reverse=true", "--undirected"),
    "both directions twice": (
        {"g.npz": {**ARRAYS, "edge_type": np.zeros(4, int)}},
        "--set edges.add_reverse=true --undirected",
        "choose one",
    ),
    "ends of two lengths": ({"g.npz": {"src": np.arange(4), "dst": np.arange(3)}}, "", "one length"),
}
METIS = {
    "0 0\n": "has no edges, and no table says which nodes there are",
    "": "expected: nodes edges",
    "3 x\n1\n": "expected: nodes edges",
    "2 1 7\n2\n1\n": "of the digits 0 and 1",
    "3 1\n2\n1\n": "states 3 nodes, but 2 lines",
    "2 1\n2\n1\n1\n": "states 2 nodes, but 3 lines",
    "2 1\n3\n1\n": "node 1 has the neighbour 3",
    "2 1\n0\n1\n": "node 1 has the neighbour 0",
    "2 2\n2\n1\n": "states 2 edges, so that 4 neighbours",
    "2 1 1\n2 1\n1\n": "the line of node 2 has 1 numbers",
    "2 1\nb\n1\n": "has a word",
}
REFUSED |= {f"METIS {text!r}": ({"g.graph": text}, "", message) for text, message in METIS.items()}


@pytest.mark.parametrize("name", REFUSED)
def test_mistakes_are_one_line(fails, tmp_path, name):
    files, options, message = REFUSED[name]
    assert message in fails(*words_of(tmp_path, files, options))


@pytest.mark.parametrize("memory", [PLENTY, LITTLE])
def test_attributes_of_edges(tmp_path, memory):
    """Weights, types that are words, and features, in blocks too."""
    write(tmp_path / "e.csv", "dst,type,a,src,weight,b\n1,x,5,0,.5,1\n2,y,6,1,1e1,1\n0,x,7,2,2,1\n")
    options = TableOptions(edge_features=("b", "a"))
    import_graph(tmp_path / "e.csv", tmp_path / "g.h5", resources=Resources(memory=memory), tables=options)
    seen = view(tmp_path / "g.h5")
    assert seen.edges == [(0, 2, 0, 2.0), (1, 0, 0, 0.5), (2, 1, 1, 10.0)]
    with GraphFile(tmp_path / "g.h5") as file:
        assert file.read("edges/features").tolist() == [[1, 7], [1, 5], [1, 6]]


@pytest.mark.parametrize("name", ["edges.csv", "x.csv"])
def test_a_pipe_is_refused_and_not_waited_for(fails, tmp_path, name):
    write(tmp_path / "e.csv", HEADED)
    os.mkfifo(tmp_path / name)
    path, more = (tmp_path / name, ()) if name == "edges.csv" else (tmp_path / "e.csv", ("--features", tmp_path / name))
    assert "can be read only once" in fails("import", path, "-o", tmp_path / "g.h5", *more)


def test_an_index_of_pandas_is_refused(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"f": [3.0, 0.0, 2.0, 1.0]}, index=[3, 0, 2, 1])
    with pytest.raises(FormatError, match="has an index that may name the nodes"):
        partition_tools.save_graph(tmp_path / "h.h5", ARRAYS["edge_index"], frame)
    partition_tools.save_graph(tmp_path / "g.h5", ARRAYS["edge_index"], frame.sort_index())
    assert view(tmp_path / "g.h5").features.tolist() == [[0], [1], [2], [3]]


@pytest.mark.parametrize("name", ["labels", "node_type", "features", "edge_weight", "edge_type", "edge_features"])
def test_a_single_number_is_no_array(tmp_path, name):
    with pytest.raises((FormatError, GraphError)):
        partition_tools.save_graph(tmp_path / "g.h5", ARRAYS["edge_index"], **{name: 1.0})
