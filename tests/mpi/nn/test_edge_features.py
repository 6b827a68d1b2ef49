"""Features of edges from the arrays of a program to the gradients of the layers that read them.

Each edge has its own row wherever it lies, parallel edges and self loops too. Layers are compared with their formulas
over a list of all edges.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch

from hpcgnn.app.trained import load_trained
from hpcgnn.errors import GraphError
from hpcgnn.graph.load import load_local_graph
from hpcgnn.graph.transforms.subgraphs import induced, with_halo
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.nn.gat import EdgeGATConv
from hpcgnn.nn.gatv2 import GATv2Conv
from hpcgnn.nn.gin import GINEConv
from hpcgnn.nn.pna import PNAConv
from hpcgnn.nn.registry import ignored
from hpcgnn.nn.spec import PLAIN
from hpcgnn.nn.transformer import TransformerConv
from hpcgnn.ops.site import Facts
from hpcgnn.plan.model_spec import model_spec

from ..edge_rows import EDGE, FEATURES, GRAPHS, maps_of, rows_of, save, written_with_rows
from ..runs import of_run, session_of, train_into
from ..training import build_trainer, configure
from . import formulas

HEADS, WIDTH = 2, 3


@pytest.fixture(scope="module")
def files(comm, session_path):
    return written_with_rows(comm, session_path)


def shares(comm, path, self_loops="keep", dtype=torch.float64, **beside):
    """LocalGraphs by both maps."""
    with GraphFile(path) as file:
        for owner in maps_of(comm, file):
            yield load_local_graph(file, owner, comm, 7, self_loops, dtype, True, edge_features=True, **beside)


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
def test_every_edge_has_its_row(comm, files, name, self_loops, drawn=None):
    """drawn: takes edges out. The mean at an added self loop is of the others alone."""
    graph, rows = GRAPHS[name], rows_of(GRAPHS[name])
    kept = slice(None) if drawn is None else drawn.sides(graph.src, graph.dst, graph.num_nodes) == 0
    src, dst, rows = graph.src[kept], graph.dst[kept], rows[kept]
    if self_loops == "add":
        src, dst, rows = with_loops(replace(graph, src=src, dst=dst), rows)
    for local in shares(comm, files[name], self_loops, **({} if drawn is None else {"task_edges": drawn})):
        found = sorted(sum(comm.allgather_object(edges_of(local, comm)), []))
        expected = sorted_edges(dst, src, rows.astype(np.float64))
        assert [edge[:2] for edge in found] == [edge[:2] for edge in expected]
        np.testing.assert_allclose(np.array(found), np.array(expected), rtol=0, atol=1e-12)
        assert local.inward.edges.features.shape == (local.inward.num_edges, EDGE)


SPEC = replace(PLAIN, dtype=torch.float64, edge_features=EDGE)
LAYERS = {
    "gine": lambda: GINEConv(FEATURES, HEADS * WIDTH, EDGE, torch.float64),
    "gat": lambda: EdgeGATConv(FEATURES, WIDTH, HEADS, False, SPEC),
    "gat averaged": lambda: EdgeGATConv(FEATURES, WIDTH, HEADS, True, SPEC),
    "gatv2": lambda: GATv2Conv(FEATURES, WIDTH, HEADS, False, SPEC),
    "transformer": lambda: TransformerConv(FEATURES, WIDTH, HEADS, False, SPEC),
    "pna": lambda: PNAConv(FEATURES, HEADS * WIDTH, torch.float64, EDGE),
}


def right(name, p, x, *edges):
    """The formula of a layer for parameters p by name, over a list of all edges: (src, dst, rows)."""
    kind, average = name.split()[0], "averaged" in name
    if kind == "gat":
        return formulas.gat(p, x, *edges[:2], edges[2] @ p["terms"], average)
    if kind == "transformer":
        return formulas.transformer(p, x, *edges[:2], HEADS, edges[2])
    return getattr(formulas, kind)(p, x, *edges)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("graph_name, self_loops", [("random directed", "keep"), ("random undirected weighted", "add")])
def test_layers(comm, files, monkeypatch, graph_name, self_loops, name):
    monkeypatch.setattr("hpcgnn.ops.row_tiles.EDGE_TILE_BYTES", 1500)
    graph = GRAPHS[graph_name]
    src, dst, rows = graph.src, graph.dst, rows_of(graph)
    if self_loops == "add":
        src, dst, rows = with_loops(graph, rows)
    layer = LAYERS[name]()
    x, gy = formulas.drawn(layer, graph.num_nodes, FEATURES, HEADS * WIDTH)
    edges = tuple(map(torch.from_numpy, (src, dst, rows.astype(np.float64))))
    expected = formulas.Expected(layer, lambda p, rows: right(name, p, rows, *edges), x, gy)
    for share in shares(comm, files[graph_name], self_loops):
        expected.check(comm, share, 7)


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


@pytest.mark.ranks(2)
@pytest.mark.parametrize("model", ["gat", "gine"])
def test_predictions_on_another_graph(comm, files, session_path, model):
    """Its features of edges are read if the run's were, and must then be as many."""
    graph = GRAPHS["random directed"]
    run_dir, other = session_path / f"edge-runs-{model}", session_path / f"edge-other-{model}.h5"
    save(comm, other, graph, rows_of(graph)[:, : EDGE if model == "gat" else 2])
    options = {"model": model, "epochs": 1, "edge_features": "none" if model == "gat" else "file"}
    train_into(comm, files["random directed"], run_dir, **options)
    config, session = of_run(run_dir, graph=other), session_of(comm)
    if model == "gine":
        with pytest.raises(GraphError, match="expected edge features 4, got 2"):
            load_trained(config, session, "last", other_graph=True)
    else:
        found = load_trained(config, session, "last", other_graph=True)
        assert found.logits()[0].shape[1] == graph.num_classes and found.trainer.plan.spec.edge_features == 0


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
    with pytest.raises(GraphError, match="gine needs edges with features"):
        build_trainer(None, configure(path, model="gine", edge_features="none"))
