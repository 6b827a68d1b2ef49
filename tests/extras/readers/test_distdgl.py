"""Folders that DGL itself partitioned (dgl_parts.py) become the graph that was partitioned, with its parts as a map."""

import json
import re

import dgl_parts
import numpy as np
import pytest
import sar_parts
import torch

from hpcgnn.errors import FormatError
from hpcgnn.extras.readers.distdgl import Options
from hpcgnn.graphfile.storage import GraphFile
from partition_tools.cli.import_graph import import_graph
from partition_tools.workspace.progress import Reporter
from partition_tools.workspace.working import Resources

SEVERAL = {"paper___cites___paper": (40, dgl_parts.PAPERS), "author___writes___paper": (20, dgl_parts.AUTHORS)}
#: name of a folder of one type: its edges by the numbers before the partitioning.
ONE_TYPE = dict.fromkeys(
    ("one", "graphbolt-one"), dgl_parts.ends(np.arange(dgl_parts.EDGES), dgl_parts.NODES, dgl_parts.NODES)
)
ONE_TYPE |= dict.fromkeys(("arxiv", "cora"), sar_parts.bidirected())
SPLIT = np.array([1, 2, 3, 0])


@pytest.fixture
def folder(tmp_path):
    return dgl_parts.unpacked(tmp_path, dgl_parts.ARCHIVE, dgl_parts.GRAPHBOLT, sar_parts.ARCHIVE)


@pytest.mark.parametrize("name", ONE_TYPE)
def test_one_type(folder, name):
    import_graph(folder / name, folder / "graph.h5")
    (book,) = (path for path in (folder / name).glob("*.json"))
    ranges = json.loads(book.read_text())["node_map"]["_N"]
    with GraphFile(folder / "graph.h5") as file:
        ends, number = dgl_parts.edges_of(file), file.read("nodes/features")[:, 0].astype(int)
        dgl_parts.assert_same_edges(number[ends], ONE_TYPE[name])
        np.testing.assert_array_equal(file.read("nodes/labels"), number % 3)
        np.testing.assert_array_equal(file.read("nodes/split"), SPLIT[number % 4])
        np.testing.assert_array_equal(file.read("clusters/offsets"), [0, *(last for _, last in ranges)])
        assert file.cluster_map("distdgl", len(ranges))[0].tolist() == [*range(len(ranges))]
        assert file.meta.undirected == (ONE_TYPE[name] is ONE_TYPE["cora"])
        if name == "one":
            edge = file.read("edges/weight").astype(int) - 1
            np.testing.assert_array_equal(number[ends], np.stack(ONE_TYPE[name])[:, edge])


@pytest.mark.parametrize("name", ["several", "graphbolt-several"])
def test_several_types(folder, name):
    import_graph(folder / name / "several.json", folder / "graph.h5")
    with GraphFile(folder / "graph.h5") as file:
        ends, edge, kind = dgl_parts.edges_of(file), file.read("edges/weight").astype(int) - 1, file.read("edges/type")
        number, of_node = file.read("nodes/features")[:, 0].astype(int), file.read("nodes/type")
        relations = file.meta.type_names["edges"]
    assert set(relations) == SEVERAL.keys()
    for place, relation in enumerate(relations):
        those, (count, sources) = kind == place, SEVERAL[relation]
        np.testing.assert_array_equal(np.sort(edge[those]), np.arange(count))
        expected = dgl_parts.ends(edge[those], sources, dgl_parts.PAPERS)
        np.testing.assert_array_equal(number[ends[:, those]], expected)
        assert len(set(of_node[ends[0, those]])) == 1


def test_several_types_of_sar(folder):
    """`features` equal to `feat`, and the number of the relation at each edge, need no option."""
    told, path = Reporter(), folder / "graph.h5"
    import_graph(folder / "mag", path, tables=Options(ignore=("year",)), resources=Resources(reporter=told))
    with GraphFile(path) as file:
        assert file.meta.num_features == 2 and file.cluster_map("distdgl", 2)[0].tolist() == [0, 1]
        kinds, relations, kind = *(file.meta.type_names[of] for of in ("nodes", "edges")), file.read("edges/type")
        papers, number = file.read("nodes/type") == kinds.index("paper"), file.read("nodes/features")[:, 0].astype(int)
        np.testing.assert_array_equal(file.read("nodes/labels"), np.where(papers, number % 3, -1))
        np.testing.assert_array_equal(file.read("nodes/split"), np.where(papers, SPLIT[number % 4], 0))
        cited = kind == relations.index("paper___cites___paper")
        dgl_parts.assert_same_edges(number[dgl_parts.edges_of(file)[:, cited]], sar_parts.ends(2, 20, 12, 12))
        counts = {"___".join(relation): count for relation, count in sar_parts.RELATIONS.items()}
        assert dict(zip(relations, np.bincount(kind))) == counts
    assert sum("no features for author" in warning for warning in told.warnings) == 1


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
    two = json.loads(config.read_text())
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
        for name in ("topology/indptr", "topology/indices", "edges/weight", "nodes/features", "clusters/offsets"):
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
    for number in range(3):  # they would belong to no edge
        name = f"part{number}/edge_feat.dgl"
        (folder / "graphbolt-one" / name).write_bytes((folder / "one" / name).read_bytes())
    with pytest.raises(FormatError, match=r"part 0 has w of edges and no edge ids.*store_eids=True"):
        import_graph(folder / "graphbolt-one", folder / "graph.h5")
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
