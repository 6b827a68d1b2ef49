"""Features of edges on their way into a graph file, and through partitioning: each edge keeps its row."""

import h5py
import numpy as np
import pandas
import pytest
from partition_helpers import graph_data, odd_graph, save_npz
from test_bounded_memory import TINY, both_ways

from hpcgnn.graphfile.storage import GraphFile
from partition_tools.canonical import edge_features
from partition_tools.canonical.canonical import ImportOptions
from partition_tools.graph.loading import load_graph
from partition_tools.graph.raw import RawGraph
from partition_tools.graph.writing import write_with_bar
from partition_tools.out_of_core import sorting
from partition_tools.partitioners.reorder import reordered
from partition_tools.readers.tables.tables import TableOptions
from partition_tools.workspace.scratch import Scratch

N = 60
SRC, DST = odd_graph()
ROWS = np.random.default_rng(3).integers(-99, 99, (len(SRC), 3)).astype(np.float32)


def edges_of(path):
    """Sorted (destination, source, *row) of a file, in original ids."""
    with h5py.File(path) as file:
        ids, indptr = file["nodes/original_id"][:], file["topology/indptr"][:]
        dst = ids[np.repeat(np.arange(len(ids)), np.diff(indptr))]
        return listed(dst, ids[file["topology/indices"][:]], file["edges/features"][:])


def listed(dst, src, rows):
    return sorted((d, s, *row) for d, s, row in zip(dst.tolist(), src.tolist(), rows.tolist()))


def write_csv(path, header=True, **more):
    columns = {"src": SRC, "dst": DST, "size": ROWS[:, 0], "weight": ROWS[:, 1], "kindness": ROWS[:, 2], **more}
    pandas.DataFrame(columns).to_csv(path, index=False, header=header)
    return path


NAMES = "size,weight,kindness"  # the names of columns decide, whatever they mean elsewhere


SOURCES = {
    "csv": (f"edges.features={NAMES}", [0, 1, 2]),
    "order": ("edges.features=kindness,size,weight", [2, 0, 1]),
    "no heading": ("edges.columns=src,dst,feature,_,feature", [0, 2]),
    "npy": ("edges.features=rows.npy", [0, 1, 2]),
    "parquet": (f"edges.features={NAMES}", [0, 1, 2]),
    "npz": ("features.dtype=fp32", [0, 1, 2]),
}


@pytest.mark.parametrize("form", SOURCES)
def test_sources(cli, imports, tmp_path, monkeypatch, form):
    monkeypatch.chdir(tmp_path)
    option, columns = SOURCES[form]
    path = write_csv(tmp_path / "g.csv", header=form != "no heading")
    if form == "npy":
        pandas.DataFrame({"src": SRC, "dst": DST}).to_csv(path, index=False)
        np.save("rows.npy", ROWS.astype(np.float64))
    if form == "parquet":
        pytest.importorskip("pyarrow")
        pandas.read_csv(path).to_parquet(path := tmp_path / "g.parquet")
    if form == "npz":
        path = save_npz(tmp_path / "g.npz", SRC, DST, N, edge_attr=ROWS)
    seen = imports(path, "--set", option)
    assert edges_of(tmp_path / "g.h5") == listed(DST, SRC, ROWS[:, columns])
    assert f"{len(columns)} edge features" in seen.said
    assert seen.meta.num_edge_features == len(columns) and not seen.meta.weighted
    assert cli("verify", tmp_path / "g.h5")[0] == 0
    assert "edge features" in cli("inspect", tmp_path / "g.h5")[1]


@pytest.mark.parametrize("options", [{}, {"undirected": True}, {"drop_duplicates": True}, {"self_loops": "remove"}])
def test_little_memory_writes_the_same_file(tmp_path, monkeypatch, options):
    monkeypatch.setattr(edge_features, "SLAB_ROWS", 17)
    path = write_csv(tmp_path / "g.csv", type=SRC % 3)
    tables = TableOptions(edge_features=tuple(NAMES.split(",")))
    both_ways(path, tmp_path, options=ImportOptions(**options), tables=tables)
    both_ways(path, tmp_path, options=ImportOptions(add_reverse=True), tables=tables)


@pytest.mark.parametrize("undirected", [False, True])
def test_in_every_order_of_the_nodes(tmp_path, monkeypatch, undirected):
    monkeypatch.setattr(edge_features, "SLAB_ROWS", 17)
    monkeypatch.setattr(sorting, "MOST_RUN", 31)
    monkeypatch.setattr(sorting, "MOST_RANGE", 27)
    raw = RawGraph(SRC, DST, N, None, np.zeros(N, np.int64), {}, 1, edge_features=ROWS)
    write_with_bar(tmp_path / "g.h5", graph_data(raw, undirected=undirected))
    expected, order = edges_of(tmp_path / "g.h5"), np.random.default_rng(1).permutation(N)
    with GraphFile(tmp_path / "g.h5") as file:
        how = order, np.array([0, 9, N]), Scratch(tmp_path / "work", TINY), {"numpy": "2"}
        write_with_bar(tmp_path / "a.h5", reordered(load_graph(file, stored_edges=True), *how))
    assert edges_of(tmp_path / "a.h5") == expected
