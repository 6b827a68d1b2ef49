"""Graphs in memory with the members of a `DGLGraph`, which need no DGL, become graph files."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from dgl_parts import edges_of

from hpcgnn.errors import FormatError
from hpcgnn.extras.readers import from_dgl
from hpcgnn.graphfile.storage import GraphFile


class Edges:
    """`graph.edges`: called for the ends of a relation, indexed for its data. of: {relation: (src, dst, data)}."""

    def __init__(self, of):
        self.of = of

    def __call__(self, etype=None):
        return tuple(torch.tensor(end) for end in self.of[etype or next(iter(self.of))][:2])

    def __getitem__(self, relation):
        return SimpleNamespace(data=self.of[relation][2])


def graph_of(nodes, edges):
    """A graph. nodes: {type: (number, data)}; edges: as of Edges."""
    ndata, edata = (next(iter(of.values()))[-1] for of in (nodes, edges))
    of_types = {kind: SimpleNamespace(data=data) for kind, (_, data) in nodes.items()}
    known = {"canonical_etypes": [*edges], "ntypes": [*nodes], "nodes": of_types, "edges": Edges(edges)}
    return SimpleNamespace(**known, num_nodes=lambda kind="node": nodes[kind][0], ndata=ndata, edata=edata)


def test_one_type(tmp_path):
    src, dst = np.random.default_rng(0).integers(0, 60, (2, 200))
    data = {"feat": torch.rand(60, 5), "label": torch.arange(60) % 4}
    data |= {f"{name}_mask": torch.arange(60) % 3 == place for place, name in enumerate(("train", "val", "test"))}
    weight = {"w": torch.arange(200) / 7}
    graph = graph_of({"node": (60, data)}, {("node", "to", "node"): (src, dst, weight)})
    from_dgl(graph, tmp_path / "g.h5")
    with GraphFile(tmp_path / "g.h5") as file:
        found = {w: tuple(ends) for w, ends in zip(file.read("edges/weight").tolist(), edges_of(file).T.tolist())}
        assert found == dict(zip(weight["w"].tolist(), zip(src, dst)))
        np.testing.assert_array_equal(file.read("nodes/features"), data["feat"])
        np.testing.assert_array_equal(file.read("nodes/split"), np.arange(60) % 3 + 1)
    weight["h"] = torch.rand(200, 2)
    with pytest.raises(FormatError, match="edge_h"):
        from_dgl(graph, tmp_path / "none.h5")


def test_several_types(tmp_path):
    """Types are ordered by their names, as `dgl.to_homogeneous` has them."""
    papers = {"feat": torch.rand(5, 2), "label": torch.arange(5) % 2}
    edges = {
        ("author", "writes", "paper"): ([0, 3, 3], [4, 0, 0], {"w": torch.ones(3)}),
        ("paper", "has", "field"): ([1, 2], [2, 0], {"w": torch.full((2,), 2.0)}),
    }
    from_dgl(graph_of({"author": (4, {}), "field": (3, {}), "paper": (5, papers)}, edges), tmp_path / "g.h5")
    with GraphFile(tmp_path / "g.h5") as file:
        found = [*edges_of(file).tolist(), file.read("edges/type").tolist(), file.read("edges/weight").tolist()]
        assert sorted(zip(*found)) == [(0, 11, 0, 1), (3, 7, 0, 1), (3, 7, 0, 1), (8, 6, 1, 2), (9, 4, 1, 2)]
        assert file.meta.type_names["nodes"] == ["author", "field", "paper"] and file.meta.num_nodes == 12
