"""The layers on the general rule against their formulas, written out over a list of all edges: outputs and every
gradient. Edges have weights, types and features, parallel edges and self loops too.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch

from hpcgnn.exchange.nodes import SharedRows
from hpcgnn.graph.load import load_local_graph
from hpcgnn.graph.transforms.within_node import within_node
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.nn.entry import TypedProjection
from hpcgnn.nn.gat import EdgeGATConv, GATConv
from hpcgnn.nn.gatv2 import GATv2Conv
from hpcgnn.nn.gin import GINEConv
from hpcgnn.nn.pna import PNAConv
from hpcgnn.nn.rgcn import RGATConv, RGCNConv
from hpcgnn.nn.spec import PLAIN as SPEC
from hpcgnn.nn.transformer import TransformerConv
from hpcgnn.options import ModelConfig

from ..edge_rows import EDGE, FEATURES, GRAPHS, NODE_TYPES, RELATIONS, maps_of, rows_of, types_of, written_with_rows
from ..nodes import emulated
from . import formulas

HEADS, WIDTH, F64 = 2, 3, torch.float64
PLAIN, MORE = (replace(SPEC, dtype=F64, edge_types=RELATIONS + 1, options=ModelConfig(bases=bases)) for bases in (2, 3))
EDGED = replace(PLAIN, edge_features=EDGE)
SIZES = FEATURES, WIDTH, HEADS
LAYERS = {
    "gat": lambda: GATConv(*SIZES, False, PLAIN, 0),
    "gat averaged": lambda: GATConv(*SIZES, True, PLAIN, 0),
    "gat of edges": lambda: EdgeGATConv(*SIZES, False, EDGED),
    "gat of edges, averaged": lambda: EdgeGATConv(*SIZES, True, EDGED),
    "gatv2": lambda: GATv2Conv(*SIZES, False, PLAIN, 0),
    "gatv2 averaged": lambda: GATv2Conv(*SIZES, True, PLAIN, 0),
    "gatv2 of edges": lambda: GATv2Conv(*SIZES, False, EDGED),
    "transformer": lambda: TransformerConv(*SIZES, False, PLAIN, 0),
    "transformer averaged": lambda: TransformerConv(*SIZES, True, PLAIN, 0),
    "transformer of edges": lambda: TransformerConv(*SIZES, False, EDGED),
    "gine of edges": lambda: GINEConv(FEATURES, HEADS * WIDTH, EDGE, F64),
    "pna": lambda: PNAConv(FEATURES, WIDTH, F64),
    "pna of edges": lambda: PNAConv(FEATURES, HEADS * WIDTH, F64, EDGE),
    "rgcn": lambda: RGCNConv(FEATURES, WIDTH, RELATIONS + 1, 2, F64),
    "rgat": lambda: RGATConv(*SIZES, False, PLAIN),
    "rgat averaged": lambda: RGATConv(*SIZES, True, MORE),
    "typed projection": lambda: TypedProjection(FEATURES, WIDTH, NODE_TYPES, F64),
}


@pytest.fixture(scope="module")
def files(comm, session_path):
    return written_with_rows(comm, session_path)


@pytest.fixture(scope="module")
def node(comm):
    """The NodeMemory of nodes of two ranks."""
    with emulated(comm, comm.rank // 2) as memory:
        yield memory


def edges_of(graph, rows, self_loops):
    """(src, dst, weight, type, rows) of all edges. 'add': each node without a loop gets one, of weight 1, one more
    type and the mean of its other in-edges' rows.
    """
    weight = np.ones(len(graph.src)) if graph.weight is None else graph.weight.astype(float)
    edges = graph.src, graph.dst, weight, types_of(graph), rows.astype(float)
    if self_loops == "add":
        lonely = np.setdiff1d(np.arange(graph.num_nodes), graph.src[graph.src == graph.dst])
        means = np.zeros((len(lonely), EDGE))
        for mean, number in zip(means, lonely):
            if (graph.dst == number).any():
                mean[:] = rows[graph.dst == number].mean(0, dtype=float)
        more = lonely, lonely, np.ones(len(lonely)), np.full(len(lonely), RELATIONS), means
        edges = (np.concatenate(pair) for pair in zip(edges, more))
    return [torch.from_numpy(array) for array in edges]


def right(name, p, x, edges):
    """The formula of a layer for parameters p (by name) and rows x (n, FEATURES) of all nodes."""
    src, dst, weight, kinds, rows = edges
    kind, average, n = name.split()[0], "averaged" in name, len(x)
    rows = rows if "of edges" in name else None
    if kind == "gat":
        return formulas.gat(p, x, src, dst, 0.0 if rows is None else rows @ p["terms"], average)
    if kind == "gatv2":
        return formulas.gatv2(p, x, src, dst, rows, average)
    if kind == "transformer":
        return formulas.transformer(p, x, src, dst, HEADS, rows, average)
    if kind in ("pna", "gine"):
        return getattr(formulas, kind)(p, x, src, dst, rows)
    if kind == "rgat":
        z = torch.einsum("ni,rb,bij->rnj", x, p["coefficients"], p["bases"])
        halves = [(z.view(*z.shape[:2], HEADS, WIDTH) * p[f"att_{end}"]).sum(-1) for end in ("src", "dst")]
        logit = torch.nn.functional.leaky_relu(halves[0][kinds, src] + halves[1][kinds, dst], 0.2)
        return formulas.affine(p, "own", x) + formulas.attended(logit, z[kinds, src], dst, n, average)
    if kind == "rgcn":
        y = formulas.affine(p, "own", x)
        for relation in range(len(p["coefficients"])):
            of = kinds == relation
            matrix = torch.einsum("b,bij->ij", p["coefficients"][relation], p["bases"])
            share = weight[of][:, None]
            total = formulas.summed(share, dst[of], n)
            y = y + formulas.summed(share * (x @ matrix)[src[of]], dst[of], n) / torch.where(total > 0, total, 1.0)
        return y
    of_nodes = torch.arange(n) % NODE_TYPES
    return torch.relu(torch.einsum("ni,nij->nj", x, p["weights"][of_nodes]) + p["bias"][of_nodes])


def expected_of(name, graph, rows, self_loops="keep"):
    """The formulas.Expected of a layer for these edges of a graph."""
    layer, edges = LAYERS[name](), edges_of(graph, rows, self_loops)
    x, gy = formulas.drawn(layer, graph.num_nodes, FEATURES, HEADS * WIDTH)
    return formulas.Expected(layer, lambda p, rows: right(name, p, rows, edges), x, gy)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("graph_name", GRAPHS)
@pytest.mark.parametrize("self_loops", ["keep", "add"])
def test_layer(comm, files, node, monkeypatch, graph_name, self_loops, name, **drawn):
    """drawn: task_edges that take edges out."""
    monkeypatch.setattr("hpcgnn.ops.row_tiles.EDGE_TILE_BYTES", 1500)
    graph, rows = GRAPHS[graph_name], rows_of(GRAPHS[graph_name])
    for each in drawn.values():
        kept = each.sides(graph.src, graph.dst, graph.num_nodes) == 0
        graph, rows = replace(graph, src=graph.src[kept], dst=graph.dst[kept]), rows[kept]
    expected = expected_of(name, graph, rows, self_loops)
    with GraphFile(files[graph_name]) as file:
        metis, nodes = maps_of(comm, file)
        for owner, cap, in_place in ((metis, 40, False), (nodes, 7, False), (np.where(metis == 1, 0, metis), 7, True)):
            read = {"keep_edges": True, "edge_features": "of edges" in name, **drawn}
            local = load_local_graph(file, owner, comm, cap, self_loops, F64, **read)
            if in_place:  # the second rank is empty
                local = within_node(local, SharedRows(node), comm, returns=True)
            expected.check(comm, local, cap)
