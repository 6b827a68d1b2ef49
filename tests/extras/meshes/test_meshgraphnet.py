"""`meshgraphnet` against PyG's MetaLayer on all edges in one process: outputs and every gradient."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from mpi.edge_rows import EDGE, FEATURES, GRAPHS, maps_of, rows_of, written_with_rows
from mpi.nn import formulas
from mpi.nodes import emulated
from torch.nn import functional

from hpcgnn.exchange.nodes import SharedRows
from hpcgnn.extras.meshes.meshgraphnet import MODEL, MeshGraphNetConfig
from hpcgnn.graph.load import load_local_graph
from hpcgnn.graph.transforms.within_node import within_node
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.nn.spec import ModelSpec

metalayer = pytest.importorskip("torch_geometric.nn.models.meta")
HIDDEN, CLASSES, DIMENSIONS, F64 = 4, 3, 2, torch.float64
CASES = [
    ("random directed", "relu", 2, True, "updated"),
    ("random undirected weighted", "elu", 6, False, "updated"),
    ("star", "gelu", 1, True, "updated"),
    ("no edges", "silu", 2, False, "updated"),
    ("random directed", "tanh", 3, False, "updated"),
    ("random directed", "elu", 2, False, "encoded"),
    ("random undirected weighted", "relu", 2, True, "encoded"),
]


def spec_of(features, **perceptrons):
    kept = {"kept_states": int(features)}
    options = MeshGraphNetConfig(model="meshgraphnet", hidden=HIDDEN, layers=3, **kept, **perceptrons)
    more = {"dimensions": DIMENSIONS, "edge_features": EDGE * features}
    return ModelSpec(options, d_in=FEATURES, classes=CLASSES, dtype=F64, **more)


class OnRows(torch.nn.Module):
    """The model, given its features."""

    def __init__(self, spec):
        super().__init__()
        self.model = MODEL.build(spec)

    def forward(self, graph, x):
        return self.model(graph.over(replace(graph._local, features=x), graph._halo))


def right(p, x, edges, position, activation, states):
    """The model as a stack of PyG's MetaLayer. p: parameters by name; edges: (src, dst, rows)."""
    src, dst, rows = edges

    def perceptron(name, rows):
        last = sum(f"model.{name}.linears.{number}.bias" in p for number in range(20)) - 1
        for number in range(last + 1):
            rows = formulas.affine(p, f"model.{name}.linears.{number}", rows)
            rows = rows if number == last else getattr(functional, activation)(rows)
        norm = f"model.{name}.norm"
        return (
            functional.layer_norm(rows, rows.shape[1:], p[f"{norm}.weight"], p[f"{norm}.bias"])
            if norm + ".bias" in p
            else rows
        )

    apart = position[src] - position[dst]
    e = perceptron("edge_encoder", torch.cat([apart, apart.norm(dim=1, keepdim=True), rows], 1))
    x = perceptron("node_encoder", x)
    for layer in range(3):
        name = f"convs.{layer}"
        meta = metalayer.MetaLayer(
            lambda x_src, x_dst, e, u, batch: e + perceptron(f"{name}.edge", torch.cat([x_src, x_dst, e], 1)),
            lambda x, index, e, u, batch: (
                x + perceptron(f"{name}.node", torch.cat([x, formulas.summed(e, index[1], len(x))], 1))
            ),
        )
        x, new, _ = meta(x, torch.stack([src, dst]), e)
        e = new if states == "updated" else e
    return perceptron("decoder", x)


@pytest.mark.parametrize("name, activation, mlp_layers, features, states", CASES)
def test_against_metalayer(comm, session_path, monkeypatch, name, activation, mlp_layers, features, states):
    monkeypatch.setattr("hpcgnn.ops.row_tiles.EDGE_TILE_BYTES", 1500)
    monkeypatch.setattr("hpcgnn.ops.row_tiles.TILE_ROWS", 32)
    graph, path = GRAPHS[name], written_with_rows(comm, session_path)[name]
    layer = OnRows(spec_of(features, activation=activation, mlp_layers=mlp_layers, edge_states=states))
    x, gy = formulas.drawn(layer, graph.num_nodes, FEATURES, CLASSES)
    rows = torch.from_numpy(rows_of(graph).astype(float))[:, : EDGE * features]
    edges = torch.from_numpy(graph.src), torch.from_numpy(graph.dst), rows
    position = torch.from_numpy(np.random.default_rng(6).random((graph.num_nodes, DIMENSIONS)))
    expected = formulas.Expected(layer, lambda p, x: right(p, x, edges, position, activation, states), x, gy)
    with GraphFile(path) as file, emulated(comm, comm.rank // 2) as node:
        metis, nodes = maps_of(comm, file)
        for owner, cap, in_place in ((metis, 40, False), (nodes, 7, False), (np.where(metis == 1, 0, metis), 7, True)):
            local = load_local_graph(file, owner, comm, cap, "keep", F64, keep_edges=True, edge_features=features)
            if in_place:  # the second rank is empty
                local = within_node(local, SharedRows(node), comm, returns=True)
            expected.check(comm, replace(local, position=position[local.original_id]), cap)
