"""PyG's own layers over ranks against the same layers in one process: weighted and parallel edges, and mistakes that
no class of PyG makes (test_every_layer.py).
"""

from dataclasses import replace

import graphs
import numpy as np
import pytest
import torch

pytest.importorskip("torch_geometric", reason="PyG is not installed: pip install torch_geometric")
from mpi.ops.test_propagate import local_edges  # noqa: E402
from mpi.small import written  # noqa: E402
from mpi.training import CHOICES, build_trainer, configure, make_graphs  # noqa: E402
from torch_geometric import nn as pyg  # noqa: E402

from hpcgnn.config import make_config  # noqa: E402
from hpcgnn.errors import ConfigError, GraphError  # noqa: E402
from hpcgnn.extras.pyg import from_pyg_layer  # noqa: E402
from hpcgnn.interface.load import load_graph  # noqa: E402
from hpcgnn.nn.registry import MODELS, register  # noqa: E402

from .pyg_layers import assert_same  # noqa: E402

pytestmark = pytest.mark.ranks(1, 2, 3)

WIDTH, EDGE = 6, 3


def one_loop_each(graph):
    """Without second self loops of a node, which PyG's layers take out before they add theirs."""
    loops = graph.src == graph.dst
    first = np.zeros(len(graph.src), bool)
    first[np.unique(np.where(loops, graph.dst, -1), return_index=True)[1]] = True
    keep = ~loops | first
    weight = None if graph.weight is None else graph.weight[keep]
    return replace(graph, src=graph.src[keep], dst=graph.dst[keep], weight=weight)


KINDS = [
    graphs.power_law(),
    graphs.random_directed(),
    graphs.random_directed(weighted=True),
    graphs.random_undirected(),
    graphs.no_edges(),
]
GRAPHS = {graph.name: graphs.with_task(one_loop_each(graph)) for graph in KINDS}


class OfBothEnds(pyg.MessagePassing):
    """A layer of a user's own: rows of both ends, of the edge, and a parameter, in three dimensions."""

    def __init__(self):
        super().__init__(aggr=["mean", "max"], node_dim=0)
        self.weight = torch.nn.Parameter(torch.randn(2, 3))

    def forward(self, x, edge_index, edge_attr):
        x = x.view(-1, 2, 3)
        out = self.propagate(edge_index, x=x, other=torch.tanh(x[:, 0]), edge_attr=edge_attr)
        return out.flatten(1)

    def message(self, x_j, other_i, edge_attr):
        return ((x_j * self.weight).sum(1) + other_i) * edge_attr


# name: (how it is made, the argument of edges that it takes, which may be the graph's own).
LAYERS = {
    "gcn with weights": (lambda: pyg.GCNConv(WIDTH, 4), "edge_weight of the graph"),
    "gcn with other weights": (lambda: pyg.GCNConv(WIDTH, 4), "edge_weight"),
    "sage of several": (lambda: pyg.SAGEConv(WIDTH, 4, aggr=["max", "sum"], project=True, normalize=True), ""),
    "gat averaged": (lambda: pyg.GATConv(WIDTH, 4, heads=3, concat=False, residual=True), ""),
    "gat with edges": (lambda: pyg.GATConv(WIDTH, 4, heads=2, edge_dim=EDGE, add_self_loops=False), "edge_attr"),
    "gatv2": (lambda: pyg.GATv2Conv(WIDTH, 4, heads=2), ""),
    "transformer": (lambda: pyg.TransformerConv(WIDTH, 4, heads=2, edge_dim=EDGE, beta=True), "edge_attr"),
    "edgeconv": (lambda: pyg.EdgeConv(torch.nn.Linear(2 * WIDTH, 4), aggr="min"), ""),
    "of both ends": (OfBothEnds, "edge_attr"),
}
# Each with parallel, weighted edges in one direction, and on one of the other graphs.
WEIGHTED = "random directed weighted"
OTHERS = [name for name in GRAPHS if name != WEIGHTED]
CASES = [(name, WEIGHTED) for name in LAYERS]
CASES += [(name, OTHERS[at % len(OTHERS)]) for at, name in enumerate(LAYERS) if name != "gcn with weights"]


@pytest.fixture(scope="module")
def loaded(comm, session_path):
    """loaded(name) -> (graph, its Layout, the TrainingGraph of this rank)."""

    def load(name):
        graph, where, file = written(comm, session_path, GRAPHS[name], "pyg")
        options = {"graph": str(file), "partition": "one empty", "precision": "fp64", "halo_buffer": 0.02}
        return graph, where, load_graph(comm, make_config(options, CHOICES), False, 32, True)

    return load


def made(name):
    torch.manual_seed(3)
    layer = LAYERS[name][0]().double().train()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn_like(parameter) / 2)  # biases and eps too
    return layer


@pytest.mark.parametrize("name, graph_name", CASES)
def test_against_one_process(comm, loaded, name, graph_name):
    graph, where, share = loaded(graph_name)
    random, row_of = np.random.default_rng(4), np.empty(graph.num_nodes, np.int64)
    row_of[where.order] = np.arange(graph.num_nodes)
    order = np.lexsort((row_of[graph.src], graph.dst))  # parallel edges in one order everywhere
    src, dst = graph.src[order], graph.dst[order]
    x = torch.from_numpy(random.standard_normal((graph.num_nodes, WIDTH)))
    argument, _, of_graph = LAYERS[name][1].partition(" ")
    edge = random.random(len(src)) if argument == "edge_weight" else random.standard_normal((len(src), EDGE))
    edge = {argument: torch.from_numpy(graph.weight[order].astype(float) if of_graph else edge)} if argument else {}
    layer, inputs = made(name), x.clone().requires_grad_()
    expected = layer(inputs, torch.from_numpy(np.stack([src, dst])), **edge)

    conv, mine = from_pyg_layer(made(name)), x[share.ids].clone().requires_grad_()
    places = local_edges(share._local, where, "one empty", comm, src, dst)
    given = {key: value[places] for key, value in edge.items()}
    if of_graph:
        torch.testing.assert_close(given["edge_weight"], share.edge_weight)
        given["edge_weight"] = share.edge_weight
    found = conv(share, mine, **given)
    assert_same(comm, share, (layer, inputs, expected), (conv, mine, found))
    assert "propagate" not in vars(conv.layer), "the layer is PyG's again"


class Odd(pyg.MessagePassing):
    """A layer that sums over other edges."""

    def __init__(self, edges):
        super().__init__()
        self.edges = edges

    def forward(self, x, edge_index):
        return self.propagate(self.edges(edge_index), x=x)


class NormalisesMessages(Odd):
    def __init__(self, edges):
        super().__init__(edges)
        self.norm = torch.nn.BatchNorm1d(WIDTH)

    def message(self, x_j):
        return self.norm(x_j)


LOOP = torch.zeros(2, 1, dtype=torch.int64)


def test_what_does_not_fit_is_refused(loaded):
    _, _, share = loaded("power law")
    x = torch.ones(len(share.ids), WIDTH, dtype=torch.float64)
    of_edges = torch.ones(share._local.inward.num_edges, 1, dtype=torch.float64)
    for layer, expected in (
        (torch.nn.Linear(2, 2), "expected a MessagePassing layer"),
        (pyg.SAGEConv(WIDTH, 4, aggr="median"), "its aggregation is Median.*keep_messages=True"),
        (pyg.SAGEConv(WIDTH, 4, flow="target_to_source"), "flow is target_to_source"),
    ):
        with pytest.raises(ConfigError, match=expected):
            from_pyg_layer(layer)
    for make, given, expected in (
        (lambda: Odd(lambda edges: edges[:, 1:]), {}, "picks edges by their position"),
        (lambda: Odd(lambda edges: torch.cat([edges, LOOP], 1)), {}, "adds edges of its own"),
        (lambda: Odd(lambda edges: LOOP), {}, "something else than the edges of this graph"),
        (lambda: NormalisesMessages(lambda edges: edges), {}, "normalise something else than the rows of nodes"),
        (lambda: pyg.GATConv(WIDTH, 4, edge_dim=1), {"edge_attr": of_edges}, "edge_updater.*keep_messages=True"),
    ):
        conv = from_pyg_layer(make().double())
        with pytest.raises(ConfigError, match=expected):
            conv(share, x, **given)
    with pytest.raises(GraphError, match="sparse"):
        from_pyg_layer(pyg.SAGEConv(WIDTH, 4))(share, None)


def test_a_job_trains_with_them(comm, session_path):
    """As a plugin does it, and with attention dropout that does not depend on the number of ranks."""
    if "pyg-gat" not in MODELS:

        @register("pyg-gat", self_loops="add")
        class Layer(torch.nn.Module):
            def __init__(self, d_in, d_out, dtype):
                super().__init__()
                self.conv = from_pyg_layer(pyg.GATConv(d_in, d_out, dropout=0.3).to(dtype))

            def forward(self, graph, x):
                return self.conv(graph, x)

    path = make_graphs(comm, session_path)["undirected"]
    config = configure(path, model="gcn", layers=2, precision="fp64").replace(model="pyg-gat")
    curves = [
        [trainer.step(epoch) for epoch in range(4)]
        for trainer in (build_trainer(comm, config, name, 50) for name in ("metis", "random-clusters"))
    ]
    alone = build_trainer(comm, config, None) if comm.rank == 0 else None
    expected = comm.broadcast_object([alone.step(epoch) for epoch in range(4)] if alone else None)
    MODELS.pop("pyg-gat", None)
    np.testing.assert_allclose(curves, [expected, expected], rtol=0, atol=1e-9)
