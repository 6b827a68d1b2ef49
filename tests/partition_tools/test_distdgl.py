"""Folders that DGL itself partitioned (dgl_parts.py) become the graph that was partitioned, with its parts as a map."""

import json
import tarfile

import dgl_parts
import numpy as np
import pytest

from hpcgnn.errors import FormatError
from hpcgnn.graphfile.storage import GraphFile
from partition_tools.cli.import_graph import import_graph

STRUCTURE = ("topology/indptr", "topology/indices", "edges/weight")


@pytest.fixture
def folder(tmp_path):
    with tarfile.open(dgl_parts.ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


def test_one_type(folder):
    import_graph(folder / "one", folder / "graph.h5")
    with GraphFile(folder / "graph.h5") as file:
        indptr, src, weight = (file.read(name) for name in STRUCTURE)
        features, labels, split = (file.read(f"nodes/{name}") for name in ("features", "labels", "split"))
        (cluster_to_rank, _), offsets = file.cluster_map("distdgl", 3), file.read("clusters/offsets")
    dst = np.repeat(np.arange(dgl_parts.NODES), np.diff(indptr))
    number, edge = features[:, 0].astype(int), weight.astype(int) - 1
    np.testing.assert_array_equal(np.sort(edge), np.arange(dgl_parts.EDGES))
    expected = dgl_parts.ends(edge, dgl_parts.NODES, dgl_parts.NODES)
    np.testing.assert_array_equal((number[src], number[dst]), expected)
    np.testing.assert_array_equal(labels, number % 3)
    np.testing.assert_array_equal(split, np.array([1, 2, 3, 0])[number % 4])
    ranges = json.loads((folder / "one" / "one.json").read_text())["node_map"]["_N"]
    np.testing.assert_array_equal(offsets, [0, *(last for _, last in ranges)])
    np.testing.assert_array_equal(cluster_to_rank, [0, 1, 2])


def test_several_types(folder):
    import_graph(folder / "several" / "several.json", folder / "graph.h5")
    with GraphFile(folder / "graph.h5") as file:
        indptr, src, weight = (file.read(name) for name in STRUCTURE)
        kind, number = file.read("edges/type"), file.read("nodes/features")[:, 0].astype(int)
        of_node, relations = file.read("nodes/type"), file.meta.type_names["edges"]
    dst, edge = np.repeat(np.arange(len(number)), np.diff(indptr)), weight.astype(int) - 1
    for place, name in enumerate(relations):
        papers, those = "cites" in name, kind == place
        sources = dgl_parts.PAPERS if papers else dgl_parts.AUTHORS
        np.testing.assert_array_equal(np.sort(edge[those]), np.arange(40 if papers else 20))
        expected = dgl_parts.ends(edge[those], sources, dgl_parts.PAPERS)
        np.testing.assert_array_equal((number[src[those]], number[dst[those]]), expected)
        assert len(set(of_node[src[those]])) == 1
    assert set(relations) == {"paper___cites___paper", "author___writes___paper"}


@pytest.mark.parametrize("ends", [False, True])
def test_old_books_and_names_of_sar(folder, ends):
    """Maps without types, of pairs or of ends. SAR's scripts name node data `features` and `labels`."""
    import_graph(folder / "one", folder / "expected.h5")
    book = folder / "one" / "one.json"
    told = json.loads(book.read_text())
    for name in ("node_map", "edge_map"):
        ((kind, ranges),) = told[name].items()
        told[name] = {kind: [last for _, last in ranges]} if ends else ranges
    book.write_text(json.dumps(told))
    for part in (folder / "one").glob("part*/node_feat.dgl"):
        renamed = part.read_bytes()
        for old, new in ((b"_N/feat", b"_N/features"), (b"_N/label", b"_N/labels")):
            length = len(old).to_bytes(8, "little")
            assert renamed.count(length + old) == 1
            renamed = renamed.replace(length + old, len(new).to_bytes(8, "little") + new)
        part.write_bytes(renamed)
    import_graph(folder / "one", folder / "graph.h5")
    with GraphFile(folder / "expected.h5") as expected, GraphFile(folder / "graph.h5") as file:
        for name in (*STRUCTURE, "nodes/features", "nodes/labels", "nodes/split", "clusters/offsets"):
            np.testing.assert_array_equal(file.read(name), expected.read(name))


def test_damage_is_one_line(folder):
    part = folder / "one" / "part1"
    graph = (part / "graph.dgl").read_bytes()
    for damaged, expected in (
        (graph[:-400], "graph.dgl: expected .* more bytes at byte"),
        (graph[:4120] + b"?" + graph[4121:], "graph.dgl: expected the graph of types at byte 4120"),
        (b"", "graph.dgl: expected 8 more bytes"),
    ):
        (part / "graph.dgl").write_bytes(damaged)
        with pytest.raises(FormatError, match=expected):
            import_graph(folder / "one", folder / "graph.h5")
    (part / "graph.dgl").write_bytes(graph)
    (part / "node_feat.dgl").unlink()
    with pytest.raises(FormatError, match=r"cannot read .*node_feat\.dgl"):
        import_graph(folder / "one", folder / "graph.h5")
    book = folder / "one" / "one.json"
    told = json.loads(book.read_text())
    told["part-0"] = {"part_graph_graphbolt": "part0/fused_csc_sampling_graph.pt"}
    book.write_text(json.dumps(told))
    with pytest.raises(FormatError, match="part 0 has no part_graph but a graph of GraphBolt"):
        import_graph(folder / "one", folder / "graph.h5")
