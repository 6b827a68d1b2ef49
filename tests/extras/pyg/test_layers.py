"""Every class of torch_geometric.nn.conv, and whole models, over ranks: equal to PyG in one process, or refused in one
line; weighted and parallel edges, and mistakes that no class of PyG makes.
"""

import re
from dataclasses import replace

import graphs
import numpy as np
import pages
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

from . import pyg_layers  # noqa: E402

pytestmark = pytest.mark.ranks(1, 2, 3)

WIDTH = pyg_layers.WIDTH


def one_loop_each(graph):
    """Without second self loops of a node, which PyG's layers take out before they add theirs."""
    loops = graph.src == graph.dst
    first = np.zeros(len(graph.src), bool)
    first[np.unique(np.where(loops, graph.dst, -1), return_index=True)[1]] = True
    keep = ~loops | first
    weight = None if graph.weight is None else graph.weight[keep]
    return replace(graph, src=graph.src[keep], dst=graph.dst[keep], weight=weight)


PLAIN, WEIGHTED = "plain", "random directed weighted"
KINDS = [
    graphs.power_law(),
    graphs.random_directed(),
    graphs.random_directed(weighted=True),
    graphs.random_undirected(),
    graphs.no_edges(),
]
GRAPHS = {graph.name: graphs.with_task(one_loop_each(graph)) for graph in KINDS}
# No edge twice.
_SMALL = graphs.random_directed(30)
_SRC, _DST = np.unique(np.stack([_SMALL.src, _SMALL.dst]), axis=1)
GRAPHS[PLAIN] = graphs.with_task(replace(_SMALL, name=PLAIN, src=_SRC, dst=_DST))
# Some with parallel, weighted edges in one direction, and on one of the other graphs; all on the plain one.
SOME = ["GCNConv, improved", "SAGEConv", "GATConv", "GATConv, edge features and self loops", "GATv2Conv"]
SOME += ["TransformerConv", "EdgeConv", *pyg_layers.OWN]
OTHERS = [name for name in GRAPHS if name not in (WEIGHTED, PLAIN)]
CASES = [(name, each) for at, name in enumerate(SOME) for each in (WEIGHTED, OTHERS[at % len(OTHERS)])]
CASES += [pytest.param(name, PLAIN, marks=pytest.mark.slow) for name in pyg_layers.every()]


@pytest.fixture(scope="module")
def loaded(comm, session_path):
    """loaded(name) -> (graph, its Layout, the TrainingGraph of this rank)."""

    def load(name):
        graph, where, file = written(comm, session_path, GRAPHS[name], "pyg")
        options = {"graph": str(file), "partition": "one empty", "precision": "fp64", "halo_buffer": 0.02}
        return graph, where, load_graph(comm, make_config(options, CHOICES), name == PLAIN, 64, True)

    return load


@pytest.fixture(scope="module")
def rows_of_page():
    """{name: (way, reason)} of the page."""
    cells = [line.strip("| \n").split(" | ") for line in pages.read("pyg.md").splitlines() if "| `" in line]
    rows = [(re.findall("`([^`]+)`", cell[0]), cell[1], cell[2].strip() if len(cell) > 2 else "") for cell in cells]
    return {name: (way, reason) for names, way, reason in rows for name in names}


@pytest.mark.parametrize("name, graph_name", CASES)
def test_against_one_process(comm, loaded, request, name, graph_name):
    """Or it is refused in one line, as the page has it."""
    graph, where, share = loaded(graph_name)
    row_of = np.empty(graph.num_nodes, np.int64)
    row_of[where.order] = np.arange(graph.num_nodes)
    order = np.lexsort((row_of[graph.src], graph.dst))  # parallel edges in one order everywhere
    src, dst = graph.src[order], graph.dst[order]
    places = local_edges(share._local, where, "one empty", comm, src, dst)
    way, reason, conv = pyg_layers.wrapped(name)
    x = pyg_layers.rows(name, graph.num_nodes)
    own = x[share.ids].clone().requires_grad_()
    if conv is not None:
        nodes, edges = pyg_layers.inputs(name, conv.layer, graph.num_nodes, len(src))
        if graph.weight is not None and "edge_weight" in edges:
            edges["edge_weight"] = torch.from_numpy(graph.weight[order].astype(float))
            torch.testing.assert_close(edges["edge_weight"][places], share.edge_weight)
        given = {key: value[share.ids] for key, value in nodes.items()}
        given |= {key: value[places] for key, value in edges.items()}
        used = []
        way, why, found = pyg_layers.tried(name, conv, lambda each: (used.append(each), each(share, own, **given))[1])
        reason = why or reason
    assert way == "streams" or name not in pyg_layers.OWN
    if graph_name == PLAIN:
        assert request.getfixturevalue("rows_of_page").get(name) == (way, reason), "run `python docs/pyg.py`"
    if way in ("streams", "keeps messages"):
        layer, inputs = pyg_layers.make(name), x.clone().requires_grad_()
        expected = layer(inputs, edge_index=torch.from_numpy(np.stack([src, dst])), **nodes, **edges)
        pyg_layers.assert_same(comm, share, (layer, inputs, expected), (used[-1], own, found))
        assert "propagate" not in vars(used[-1].layer), "the layer is PyG's again"


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
        (
            lambda: pyg.GATConv(WIDTH, 4, edge_dim=1),
            {"edge_attr": of_edges},
            r"edge_update\(\) takes.*keep_messages=True",
        ),
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
