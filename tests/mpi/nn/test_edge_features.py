"""Features of edges from the arrays of a program to the gradients of the layers that read them.

Each edge has its own row wherever it lies, parallel edges and self loops too; layers are compared with their formulas
over a list of all edges.
"""

from dataclasses import replace
from types import SimpleNamespace

import graphs
import numpy as np
import pytest
import torch

import partition_tools
from hpcgnn.app.resuming import options_of_run
from hpcgnn.app.train import train
from hpcgnn.app.trained import load_trained
from hpcgnn.config import make_config
from hpcgnn.errors import GraphError
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.graph.held_out import LinkSplit
from hpcgnn.graph.load import load_local_graph
from hpcgnn.graph.transforms.subgraphs import induced, with_halo
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.nn.gat import EdgeGATConv
from hpcgnn.nn.gatv2 import GATv2Conv
from hpcgnn.nn.gin import GINEConv
from hpcgnn.nn.graph import Graph
from hpcgnn.nn.pna import PNAConv
from hpcgnn.nn.registry import ignored
from hpcgnn.nn.spec import ModelSpec
from hpcgnn.nn.transformer import TransformerConv
from hpcgnn.ops.draws import Randomness
from hpcgnn.ops.site import Facts
from hpcgnn.plan.model_spec import model_spec
from hpcgnn.schedules.full_halo import FullHalo

from ..gathering import whole
from ..training import CHOICES, build_trainer, configure
from . import formulas

D_IN, HEADS, WIDTH, EDGE = 5, 2, 3, 4
GRAPHS = {
    graph.name: graphs.with_task(graph, D_IN)
    for graph in (graphs.random_directed(), graphs.random_undirected(weighted=True), graphs.star(), graphs.no_edges())
}


def rows_of(graph):
    """(E, EDGE) float32, all different; an edge and its reverse too."""
    return np.random.default_rng(8).standard_normal((len(graph.src), EDGE)).astype(np.float32)


@pytest.fixture(scope="module")
def files(comm, session_path):
    """{name: path} of the graphs with features of edges, partitioned by METIS."""
    paths = {name: session_path / f"edge-features-{name.replace(' ', '-')}.h5" for name in GRAPHS}
    if comm.rank == 0 and not any(path.exists() for path in paths.values()):  # another file of tests has them, too
        for name, graph in GRAPHS.items():
            split = {which: graph.split == code for which, code in (("train", 1), ("val", 2), ("test", 3))}
            split = {which: members & (graph.labels >= 0) for which, members in split.items()}
            partition_tools.save_graph(
                paths[name],
                np.stack([graph.src, graph.dst]),
                graph.features,
                graph.labels,
                split,
                edge_weight=graph.weight,
                edge_features=rows_of(graph),
                ranks=[1, 2, 3, 4],
            )
    comm.barrier()
    return paths


def shares(comm, path, self_loops="keep", dtype=torch.float64, links=None):
    """LocalGraphs by the stored map, and by one that deals out single nodes and leaves the last rank without any."""
    with GraphFile(path) as file:
        nodes = np.random.default_rng(2).integers(0, max(1, comm.size - 1), file.meta.num_nodes, dtype=np.int32)
        for owner in (file.cluster_map("metis", comm.size)[0], nodes):
            yield load_local_graph(file, owner, comm, 7, self_loops, dtype, True, links=links, edge_features=True)


def with_loops(graph, rows):
    """(src, dst, rows) with a loop at each node that has none, of the mean of its other in-edges."""
    lonely = np.setdiff1d(np.arange(graph.num_nodes), graph.src[graph.src == graph.dst])
    means = [rows[graph.dst == node].mean(0, dtype=np.float64) if (graph.dst == node).any() else 0 for node in lonely]
    means = np.array([np.zeros(EDGE) + mean for mean in means]).reshape(-1, EDGE)
    return np.append(graph.src, lonely), np.append(graph.dst, lonely), np.concatenate([rows, means])


def sorted_edges(dst, src, rows):
    return sorted((d, s, *row) for d, s, row in zip(dst.tolist(), src.tolist(), rows.tolist()))


def edges_of(local, comm):
    """(dst, src, rows) of the edges of a rank, by the blocks that operators go through; original ids."""
    halo_ids, found = Facts(local, comm).inward_ids(), []
    for block in (local.inward.own, *local.inward.halo):
        stored = torch.arange(local.num_owned) if block.rows is None else block.rows.long()
        dst = local.original_id[torch.repeat_interleave(stored, torch.diff(block.indptr))]
        ids = local.original_id if block.first_column is None else halo_ids[block.first_column :]
        found += sorted_edges(dst, ids[block.indices.long()], local.inward.edges.features[block.edge.long()])
    return found


@pytest.mark.parametrize("self_loops", ["keep", "add"])
@pytest.mark.parametrize("name", GRAPHS)
def test_every_edge_has_its_row(comm, files, name, self_loops):
    graph = GRAPHS[name]
    src, dst, rows = graph.src, graph.dst, rows_of(graph)
    if self_loops == "add":
        src, dst, rows = with_loops(graph, rows)
    for local in shares(comm, files[name], self_loops):
        found = sorted(sum(comm.allgather_object(edges_of(local, comm)), []))
        expected = sorted_edges(dst, src, rows.astype(np.float64))
        assert [edge[:2] for edge in found] == [edge[:2] for edge in expected]
        np.testing.assert_allclose(np.array(found), np.array(expected), rtol=0, atol=1e-12)


@pytest.mark.parametrize("self_loops", ["keep", "add"])
@pytest.mark.parametrize("name", GRAPHS)
def test_edges_keep_their_rows_when_others_are_held_out(comm, files, name, self_loops):
    """The mean at an added self loop is of the training edges alone."""
    graph, split = GRAPHS[name], LinkSplit(17, (0.6, 0.2, 0.2))
    sides = split.sides(graph.src, graph.dst, graph.num_nodes)
    src, dst, rows = graph.src[sides == 0], graph.dst[sides == 0], rows_of(graph)[sides == 0]
    if self_loops == "add":
        src, dst, rows = with_loops(replace(graph, src=src, dst=dst), rows)
    for local in shares(comm, files[name], self_loops, links=split):
        found = sorted(sum(comm.allgather_object(edges_of(local, comm)), []))
        expected = sorted_edges(dst, src, rows.astype(np.float64))
        assert [edge[:2] for edge in found] == [edge[:2] for edge in expected]
        np.testing.assert_allclose(np.array(found), np.array(expected), rtol=0, atol=1e-12)
        assert local.inward.edges.features.shape == (local.inward.num_edges, EDGE)


SPEC = ModelSpec("gat", D_IN, 4, 2, WIDTH, dtype=torch.float64, edge_features=EDGE)
LAYERS = {
    "gine": lambda: GINEConv(D_IN, HEADS * WIDTH, EDGE, torch.float64),
    "gat": lambda: EdgeGATConv(D_IN, WIDTH, HEADS, False, SPEC),
    "gat averaged": lambda: EdgeGATConv(D_IN, WIDTH, HEADS, True, SPEC),
    "gatv2": lambda: GATv2Conv(D_IN, WIDTH, HEADS, False, SPEC),
    "transformer": lambda: TransformerConv(D_IN, WIDTH, HEADS, False, SPEC),
    "pna": lambda: PNAConv(D_IN, HEADS * WIDTH, torch.float64, EDGE),
}


def right(name, p, x, *edges):
    """The formula of a layer for parameters p by name, over a list of all edges: (src, dst, rows)."""
    kind, average = name.split()[0], "averaged" in name
    if kind == "gat":
        return formulas.gat(p, x, *edges[:2], edges[2] @ p["terms"], average)
    if kind == "transformer":
        return formulas.transformer(p, x, *edges[:2], HEADS, edges[2])
    return getattr(formulas, kind)(p, x, *edges)


def compare(comm, share, layer, x, gy, expected, gradient, gradients):
    """Output and every gradient of a layer on a LocalGraph with those of a formula: gradients by parameters' names."""
    buffers = HaloBuffers(4 * 7 * 8 * 4 * HEADS * WIDTH)
    graph = Graph(
        share, FullHalo(share, comm, buffers), comm.total, Randomness(1), lambda _, compute: compute(), buffers.arena
    )
    mine = x[share.original_id].requires_grad_()
    layer.zero_grad()
    y = layer(graph, mine)
    y.backward(gy[share.original_id, : y.shape[1]])
    close = {"rtol": 0, "atol": 1e-9}
    np.testing.assert_allclose(whole(comm, share, y), expected.detach(), **close)
    np.testing.assert_allclose(whole(comm, share, mine.grad), gradient, **close)
    for key, parameter in layer.named_parameters():
        total = comm.total(torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone())
        np.testing.assert_allclose(total, gradients[key], err_msg=key, **close)


def drawn(layer, num_nodes):
    """(x, gy) of all nodes; the parameters are drawn too."""
    draw = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=draw, dtype=torch.float64) * 0.5)
    return tuple(torch.randn(num_nodes, width, generator=draw, dtype=torch.float64) for width in (D_IN, HEADS * WIDTH))


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("graph_name, self_loops", [("random directed", "keep"), ("random undirected weighted", "add")])
def test_layers(comm, files, monkeypatch, graph_name, self_loops, name):
    monkeypatch.setattr("hpcgnn.ops.row_tiles.EDGE_TILE_BYTES", 1500)
    graph = GRAPHS[graph_name]
    src, dst, rows = graph.src, graph.dst, rows_of(graph)
    if self_loops == "add":
        src, dst, rows = with_loops(graph, rows)
    layer = LAYERS[name]()
    x, gy = drawn(layer, graph.num_nodes)
    parameters = {key: value.detach().clone().requires_grad_() for key, value in layer.named_parameters()}
    everywhere = x.clone().requires_grad_()
    expected = right(name, parameters, everywhere, *map(torch.from_numpy, (src, dst, rows.astype(np.float64))))
    expected.backward(gy[:, : expected.shape[1]])
    gradients = {key: value.grad for key, value in parameters.items()}
    for share in shares(comm, files[graph_name], self_loops):
        compare(comm, share, layer, x, gy, expected, everywhere.grad, gradients)


def test_shares_of_their_own_keep_the_rows(comm, files):
    """Whoever trains on own nodes alone (tma, stale) finds the same row for an edge."""
    for local in shares(comm, files["random directed"]):
        wanted = edges_of(local, comm)
        ids = set(local.original_id.tolist())
        for share, kept in (
            (induced(local), [edge for edge in wanted if edge[1] in ids]),
            (with_halo(local, comm), wanted),
        ):
            block = share.inward.own
            dst = share.original_id[torch.repeat_interleave(torch.diff(block.indptr))]
            rows = share.inward.edges.features[block.edge.long()]
            assert sorted(sorted_edges(dst, share.original_id[block.indices.long()], rows)) == sorted(kept)


@pytest.mark.parametrize("model", ["gat", "gine"])
def test_predictions_on_another_graph(comm, files, session_path, monkeypatch, model):
    """Its features of edges are read if the run's were, and must then be as many."""
    graph = GRAPHS["random directed"]
    runs, other = session_path / f"edge-runs-{model}", session_path / f"edge-other-{model}.h5"
    masks = {"train": graph.labels >= 0}
    if comm.rank == 0:
        rows = rows_of(graph)[:, : EDGE if model == "gat" else 2]
        ends = np.stack([graph.dst, graph.src])
        partition_tools.save_graph(
            other, ends, graph.features, graph.labels, masks, edge_features=rows, ranks=[1, 2, 3, 4]
        )
    comm.barrier()
    options = {"model": model, "epochs": 1, "run_dir": str(runs), "edge_features": "none" if model == "gat" else "file"}
    session = SimpleNamespace(comm=comm, threads=1)
    monkeypatch.setattr("hpcgnn.engine.summary.draw_curves", lambda run_dir: None)
    assert train(configure(files["random directed"], **options), session) == 0
    comm.barrier()
    config = make_config(options_of_run(runs, {"graph": str(other)}), CHOICES)
    if model == "gine":
        with pytest.raises(GraphError, match="expected edge features 4, got 2"):
            load_trained(config, session, "last", other_graph=True)
    else:
        found = load_trained(config, session, "last", other_graph=True)
        assert found.logits()[0].shape[1] == graph.num_classes and found.spec.edge_features == 0


def test_what_is_not_read_is_said(files):
    path = files["random undirected weighted"]
    with GraphFile(path) as file:
        meta = file.meta

    def said(**options):
        return " ".join(ignored(model_spec(meta, configure(path, **options)), meta.num_edge_features))

    assert said(model="gine") == said(model="transformer").replace("transformer", "gine")  # weights alone
    assert "the weights" in said(model="gine") and "features" not in said(model="gine")
    assert "the 4 features of this graph's edges are ignored by --model gcn; gine, gat" in said(model="gcn")
    assert "--edge-features file reads them" in said(model="gat", edge_features="none")
    assert "the 4 features" in said(model="gat", edge_term="weight")
    with pytest.raises(GraphError, match="gine needs edges with features"):
        build_trainer(None, configure(path, model="gine", edge_features="none"))
