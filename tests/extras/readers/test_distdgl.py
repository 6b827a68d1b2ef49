"""Folders that DGL itself partitioned (dgl_parts.py) become the graph that was partitioned, with its parts as a map."""

import copy
import json
import re
import tarfile

import dgl_parts
import numpy as np
import pytest
import torch

from hpcgnn.errors import FormatError
from hpcgnn.extras.readers.distdgl import Options
from hpcgnn.graphfile.storage import GraphFile
from partition_tools.cli.import_graph import import_graph
from partition_tools.workspace.progress import Reporter
from partition_tools.workspace.working import Resources

STRUCTURE = ("topology/indptr", "topology/indices", "edges/weight")


@pytest.fixture
def folder(tmp_path):
    for path in (dgl_parts.ARCHIVE, dgl_parts.GRAPHBOLT):
        with tarfile.open(path) as archive:
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


def test_graphs_of_graphbolt_without_ids_of_edges(folder):
    """The graph has exactly the partitioned edges. Data of edges would belong to none, and are refused."""
    import_graph(folder / "graphbolt-one", folder / "graph.h5")
    with GraphFile(folder / "graph.h5") as file:
        indptr, src, number = (file.read(name) for name in (*STRUCTURE[:2], "nodes/features"))
        labels, number = file.read("nodes/labels"), number[:, 0].astype(int)
        assert file.cluster_map("distdgl", 3)[0].tolist() == [0, 1, 2]
    dst = np.repeat(np.arange(dgl_parts.NODES), np.diff(indptr))
    expected = np.stack(dgl_parts.ends(np.arange(dgl_parts.EDGES), dgl_parts.NODES, dgl_parts.NODES))
    found = np.stack([number[src], number[dst]])
    np.testing.assert_array_equal(found[:, np.lexsort(found)], expected[:, np.lexsort(expected)])
    np.testing.assert_array_equal(labels, number % 3)
    for part in range(3):
        name = f"part{part}/edge_feat.dgl"
        (folder / "graphbolt-one" / name).write_bytes((folder / "one" / name).read_bytes())
    with pytest.raises(FormatError, match=r"part 0 has w of edges and no edge ids.*store_eids=True"):
        import_graph(folder / "graphbolt-one", folder / "again.h5")


@pytest.mark.parametrize("name", ["several", "graphbolt-several"])
def test_several_types(folder, name):
    import_graph(folder / name / "several.json", folder / "graph.h5")
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


def test_names_of_graphstorm(folder):
    """Features of a type side by side, its labels, the masks of their task; masks of edges are no masks of nodes."""
    book, config = folder / "graphstorm", folder / "graphstorm" / "data_transform_new.json"
    with pytest.raises(FormatError, match=r"acm\.json holds edge_train_mask, which is not read"):
        import_graph(book, folder / "graph.h5")
    tables = Options(ignore=("edge_train_mask",))
    data = import_graph(book, folder / "graph.h5", tables=tables)
    of_papers = data.node_type == data.type_names["nodes"].index("paper")
    number = data.features[:, 0].astype(int)
    np.testing.assert_array_equal(data.features[:, 1:], np.repeat(of_papers[:, None], 2, 1))
    np.testing.assert_array_equal(data.labels, np.where(of_papers, number % 2, -1))
    np.testing.assert_array_equal(data.split, np.where(of_papers, number % 3 + 1, 0))
    two = copy.deepcopy(dgl_parts.GRAPHSTORM)
    two["nodes"][0]["labels"].append({"label_col": "size", "task_type": "regression"})
    del two["nodes"][0]["features"][1]
    config.write_text(json.dumps(two))
    told = Reporter()
    with pytest.raises(FormatError, match="train_m"):
        import_graph(book, folder / "graph2.h5", tables=tables, resources=Resources(reporter=told))
    (remedy,) = re.findall(r"2 tasks \(venue, size\).* arrays.rename=(\S+)", " ".join(told.warnings))
    assert remedy == "venue=label,train_m=train_mask,val_m=val_mask,test_m=test_mask"
    pairs = tuple(tuple(pair.split("=")) for pair in remedy.split(","))
    tables = Options(ignore=("edge_train_mask", "size"), rename=pairs)
    again = import_graph(book, folder / "graph3.h5", tables=tables)
    np.testing.assert_array_equal((again.labels, again.split), (data.labels, data.split))
    assert again.features.shape[1] == 1
    config.write_text("[]")
    with pytest.raises(FormatError, match="as GraphStorm writes it"):
        import_graph(book, folder / "graph4.h5")
    config.unlink()
    with pytest.raises(FormatError, match=r"no array nothing to rename; it has .*label"):
        import_graph(folder / "one", folder / "graph4.h5", tables=Options(rename=(("nothing", "label"),)))


@pytest.mark.parametrize("ends", [False, True])
def test_old_books(folder, ends):
    """Maps without types, of pairs or of ends."""
    import_graph(folder / "one", folder / "expected.h5")
    book = folder / "one" / "one.json"
    told = json.loads(book.read_text())
    for name in ("node_map", "edge_map"):
        ((kind, ranges),) = told[name].items()
        told[name] = {kind: [last for _, last in ranges]} if ends else ranges
    book.write_text(json.dumps(told))
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
    part = folder / "graphbolt-one" / "part0" / "fused_csc_sampling_graph.pt"
    part.write_bytes(part.read_bytes()[:-300])
    with pytest.raises(FormatError, match=r"fused_csc_sampling_graph\.pt is not a readable file"):
        import_graph(folder / "graphbolt-one", folder / "graph.h5")
    torch.save({"indptr": torch.zeros(3)}, part)
    with pytest.raises(FormatError, match=r"fused_csc_sampling_graph\.pt is not a FusedCSCSamplingGraph"):
        import_graph(folder / "graphbolt-one", folder / "graph.h5")
    book = folder / "one" / "one.json"
    told = json.loads(book.read_text())
    del told["part-0"]["part_graph"]
    book.write_text(json.dumps(told))
    with pytest.raises(FormatError, match="part 0 has no part_graph, such as part0/graph.dgl"):
        import_graph(folder / "one", folder / "graph.h5")
