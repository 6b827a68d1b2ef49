"""Graphs of DGL in memory become the graphs that DGL itself has."""

import numpy as np
import pytest
import torch

from hpcgnn.errors import FormatError
from hpcgnn.extras.readers import from_dgl
from hpcgnn.graphfile.storage import GraphFile

dgl = pytest.importorskip("dgl", reason="DGL is not installed")


def edges_of(path):
    """Sorted (destination, source, type, weight) of a graph file."""
    with GraphFile(path) as file:
        indptr, kind = file.read("topology/indptr"), np.zeros(file.meta.num_edges, int)
        kind = file.read("edges/type") if file.meta.typed else kind
        dst = np.repeat(np.arange(file.meta.num_nodes), np.diff(indptr))
        columns = dst, file.read("topology/indices"), kind, file.read("edges/weight")
        return sorted(zip(*(column.tolist() for column in columns)))


def expected(graph, kind):
    src, dst = graph.edges()
    return sorted(zip(dst.tolist(), src.tolist(), kind.tolist(), graph.edata["w"].tolist()))


def test_one_type(tmp_path):
    random = np.random.default_rng(0)
    src, dst = random.integers(0, 60, (2, 200))
    graph = dgl.graph((src, dst), num_nodes=60)
    masks = {name: torch.from_numpy(np.arange(60) % 3 == place) for place, name in enumerate(("train", "val", "test"))}
    graph.ndata.update(feat=torch.rand(60, 5), label=torch.arange(60) % 4)
    graph.ndata.update({f"{name}_mask": mask for name, mask in masks.items()})
    graph.edata["w"] = torch.rand(len(src))
    from_dgl(graph, tmp_path / "g.h5")
    assert edges_of(tmp_path / "g.h5") == expected(graph, np.zeros(len(src), int))
    with GraphFile(tmp_path / "g.h5") as file:
        np.testing.assert_array_equal(file.read("nodes/features"), graph.ndata["feat"])
        np.testing.assert_array_equal(file.read("nodes/split"), np.arange(60) % 3 + 1)
    graph.edata["h"] = torch.rand(len(src), 2)
    with pytest.raises(FormatError, match="edge_h"):
        from_dgl(graph, tmp_path / "none.h5")


def test_several_types(tmp_path):
    """DGL orders types by their names; so the graph is compared with itself in one type."""
    ends = {("author", "writes", "paper"): ([0, 3, 3], [4, 0, 0]), ("paper", "has", "field"): ([1, 2], [2, 0])}
    graph = dgl.heterograph(ends, num_nodes_dict={"paper": 5, "author": 4, "field": 3})
    graph.nodes["paper"].data.update(feat=torch.rand(5, 2), label=torch.arange(5) % 2)
    for number, relation in enumerate(ends):
        graph.edges[relation].data["w"] = torch.full((graph.num_edges(relation),), 1.0 + number)
    from_dgl(graph, tmp_path / "g.h5")
    plain = dgl.to_homogeneous(graph, edata=["w"])
    assert edges_of(tmp_path / "g.h5") == expected(plain, plain.edata["_TYPE"])
    with GraphFile(tmp_path / "g.h5") as file:
        assert file.meta.type_names["nodes"] == graph.ntypes and file.meta.num_nodes == 12
