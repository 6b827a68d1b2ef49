"""Layers with message functions on nodes of several ranks, which read rows in place: outputs and every gradient against
formulas over a list of all edges.

At 6 ranks nodes are three of two ranks, and two of three (see env/test.sh).
"""

import copy

import numpy as np
import pytest
import torch

from hpcgnn.exchange.node_rows import NodeRows
from hpcgnn.graph.load import load_local_graph
from hpcgnn.graph.transforms.within_node import within_node
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.nn.pyg import PygLayer

from ..nn.test_edge_features import (
    D_IN,
    EDGE,
    GRAPHS,
    HEADS,
    LAYERS,
    WIDTH,
    compare,
    drawn,
    files,
    largest,
    right,
    rows_of,
)
from ..nn.test_edge_features import summed as summed_over
from ..nodes import NODES, emulated

pytestmark = pytest.mark.ranks(3, 4, 6)

WAYS = ["pairs", "threes"]
OUT = HEADS * WIDTH
__all__ = ["files"]  # a fixture


class OfBothEnds(torch.nn.Module):
    """As a plugin has it."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(2 * D_IN + EDGE, OUT // 2, dtype=torch.float64))

    def message(self, source, target, edge):
        return torch.tanh(torch.cat([source, target, edge], 1) @ self.weight)

    def forward(self, graph, x):
        return graph.propagate(self.message, ["sum", "max"], x_src=x, x_dst=x, edge=graph.edge_features)

    def formula(self, x, src, dst, rows):
        messages = self.message(x[src], x[dst], rows)
        return torch.cat([summed_over(messages, dst, len(x)), largest(messages, dst, len(x), 1)], 1)


class OfPyg(PygLayer):
    """With the features of the edges."""

    def __init__(self):
        pyg = pytest.importorskip("torch_geometric.nn")
        super().__init__(pyg.GINEConv(torch.nn.Linear(D_IN, OUT), train_eps=True, edge_dim=EDGE).double())

    def forward(self, graph, x):
        return super().forward(graph, x, edge_attr=graph.edge_features)

    def formula(self, x, src, dst, rows):
        return self.layer(x, torch.stack([src, dst]), edge_attr=rows)


def formula(name, layer, x, edges):
    """The outputs for all nodes by the layer's own parameters."""
    return layer.formula(x, *edges) if name in MADE else right(name, dict(layer.named_parameters()), x, *edges)


MADE = {"a plugin": OfBothEnds, "a layer of PyG": OfPyg}


@pytest.mark.parametrize("graph_name", ["random directed", "star"])
@pytest.mark.parametrize("way", WAYS)
def test_layers(comm, files, way, graph_name):  # noqa: F811
    graph = GRAPHS[graph_name]
    edges = [torch.from_numpy(each) for each in (graph.src, graph.dst, rows_of(graph).astype(np.float64))]
    owner = np.random.default_rng(2).integers(0, comm.size - 1, graph.num_nodes, dtype=np.int32)  # one rank is empty
    with GraphFile(files[graph_name]) as file, emulated(comm, NODES[way](comm.rank)) as memory:
        local = load_local_graph(file, owner, comm, 7, "keep", torch.float64, True, edge_features=True)
        read = within_node(local, NodeRows(memory), comm, returns=True)
        for name in ("gine", "pna", *MADE):
            layer = (MADE.get(name) or LAYERS[name])()
            x, gy = drawn(layer, graph.num_nodes)
            other, everywhere = copy.deepcopy(layer), x.clone().requires_grad_()
            expected = formula(name, other, everywhere, edges)
            expected.backward(gy)
            gradients = {key: each.grad for key, each in other.named_parameters()}
            compare(comm, read, layer, x, gy, expected, everywhere.grad, gradients)
