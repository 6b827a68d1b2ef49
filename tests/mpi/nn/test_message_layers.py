"""The layers on the general rule against their formulas, written out over a list of all edges: outputs and every
gradient.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch

from hpcgnn.exchange.nodes import NodeRows
from hpcgnn.graph.load import load_local_graph
from hpcgnn.graph.transforms.within_node import within_node
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.nn.entry import TypedProjection
from hpcgnn.nn.gat import GATConv
from hpcgnn.nn.gatv2 import GATv2Conv
from hpcgnn.nn.pna import PNAConv
from hpcgnn.nn.rgcn import RGATConv, RGCNConv
from hpcgnn.nn.spec import PLAIN
from hpcgnn.nn.transformer import TransformerConv
from hpcgnn.options import ModelConfig

from ..nodes import emulated
from ..training import generated
from . import formulas

NODES, D_IN, HEADS, WIDTH, RELATIONS, KINDS = 300, 6, 2, 3, 3, 2
SPEC = replace(PLAIN, dtype=torch.float64)
TYPED = [replace(SPEC, options=ModelConfig(bases=bases), edge_types=RELATIONS) for bases in (2, 3)]
LAYERS = {
    "gat": lambda: GATConv(D_IN, WIDTH, HEADS, False, SPEC, 0),
    "gat averaged": lambda: GATConv(D_IN, WIDTH, HEADS, True, SPEC, 0),
    "gatv2": lambda: GATv2Conv(D_IN, WIDTH, HEADS, False, SPEC, 0),
    "gatv2 averaged": lambda: GATv2Conv(D_IN, WIDTH, HEADS, True, SPEC, 0),
    "transformer": lambda: TransformerConv(D_IN, WIDTH, HEADS, False, SPEC, 0),
    "transformer averaged": lambda: TransformerConv(D_IN, WIDTH, HEADS, True, SPEC, 0),
    "pna": lambda: PNAConv(D_IN, WIDTH, torch.float64),
    "rgcn": lambda: RGCNConv(D_IN, WIDTH, RELATIONS, 2, torch.float64),
    "rgcn looped": lambda: RGCNConv(D_IN, WIDTH, RELATIONS + 1, 2, torch.float64),
    "rgat": lambda: RGATConv(D_IN, WIDTH, HEADS, False, TYPED[0]),
    "rgat averaged": lambda: RGATConv(D_IN, WIDTH, HEADS, True, TYPED[1]),
    "typed projection": lambda: TypedProjection(D_IN, WIDTH, KINDS, torch.float64),
}


@pytest.fixture(scope="module")
def files(comm, session_path):
    """{name: path}: typed graphs, one undirected and one directed and weighted."""
    kinds = {"undirected": {}, "directed weighted": {"directed": True, "weighted": True}}
    usual = {"nodes": NODES, "degree": 5, "features": D_IN, "edge_types": RELATIONS, "node_types": KINDS}
    methods = "metis", "random-clusters"
    return {
        name: generated(comm, session_path / f"typed-{name.replace(' ', '-')}.h5", 24, methods, **usual, **options)
        for name, options in kinds.items()
    }


@pytest.fixture(scope="module")
def node(comm):
    """The NodeMemory of nodes of two ranks."""
    with emulated(comm, comm.rank // 2) as memory:
        yield memory


def all_edges(path, looped=False):
    """(src, dst, weight, type, node type) of the whole graph in original ids.

    looped: each node without a loop gets one, of weight 1 and one more type.
    """
    with GraphFile(path) as file:
        ids = file.read("nodes/original_id")
        indptr, indices = file.read("topology/indptr"), file.read("topology/indices")
        weight = file.read("edges/weight") if file.meta.weighted else np.ones(len(indices))
        kinds = np.empty(len(ids), np.int64)
        kinds[ids] = file.read("nodes/type")
        dst = ids[np.repeat(np.arange(len(ids)), np.diff(indptr))]
        arrays = ids[indices], dst, weight.astype(np.float64), file.read("edges/type").astype(np.int64), kinds
    if looped:
        lonely = np.setdiff1d(np.arange(len(ids)), arrays[0][arrays[0] == dst])
        more = lonely, lonely, np.ones(len(lonely)), np.full(len(lonely), RELATIONS)
        arrays = *(np.concatenate(pair) for pair in zip(arrays, more)), kinds
    return [torch.from_numpy(array) for array in arrays]


def right(name, p, x, edges):
    """The formula of a layer for parameters p (by name) and rows x (n, D_IN) of all nodes."""
    src, dst, weight, kinds, node_kinds = edges
    kind, average = name.split()[0], "averaged" in name
    if kind in ("gat", "gatv2"):
        return getattr(formulas, kind)(p, x, src, dst, average=average)
    if kind == "transformer":
        return formulas.transformer(p, x, src, dst, HEADS, average=average)
    if kind == "pna":
        return formulas.pna(p, x, src, dst)
    if kind == "rgat":
        y = formulas.affine(p, "own", x)
        matrices = torch.einsum("rb,bij->rij", p["coefficients"], p["bases"])
        z = torch.einsum("ni,rij->rnj", x, matrices)
        halves = [(z.view(*z.shape[:2], HEADS, WIDTH) * p[f"att_{end}"]).sum(-1) for end in ("src", "dst")]
        logit = torch.nn.functional.leaky_relu(halves[0][kinds, src] + halves[1][kinds, dst], 0.2)
        return y + formulas.attended(logit, z[kinds, src], dst, NODES, average)
    if kind == "rgcn":
        y = formulas.affine(p, "own", x)
        for relation in range(len(p["coefficients"])):
            of = kinds == relation
            matrix = torch.einsum("b,bij->ij", p["coefficients"][relation], p["bases"])
            share = weight[of][:, None]
            total = formulas.summed(share, dst[of], NODES)
            rows = formulas.summed(share * (x @ matrix)[src[of]], dst[of], NODES)
            y = y + rows / torch.where(total > 0, total, 1.0)
        return y
    return torch.relu(torch.stack([x[i] @ p["weights"][k] for i, k in enumerate(node_kinds)]) + p["bias"][node_kinds])


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("file", ["undirected", "directed weighted"])
def test_layer(comm, files, node, file, name):
    looped, layer = "looped" in name, LAYERS[name]()
    edges = all_edges(files[file], looped)
    x, gy = formulas.drawn(layer, NODES, D_IN, HEADS * WIDTH)
    expected = formulas.Expected(layer, lambda p, rows: right(name, p, rows, edges), x, gy)
    for map_name, rows, in_place in (("metis", 40, False), ("random-clusters", 7, False), ("random-clusters", 7, True)):
        with GraphFile(files[file]) as opened:
            owner, _ = opened.cluster_map(map_name, comm.size)
            if in_place:  # the second rank is empty
                owner = np.where(owner == 1, 0, owner)
            loops = "add" if looped else "keep"
            local = load_local_graph(opened, owner, comm, rows, loops, torch.float64, keep_edges=True)
            if in_place:
                local = within_node(local, NodeRows(node), comm, returns=True)
        expected.check(comm, local, rows)
