"""Features of edges in shares of their own, on another graph, and those that nobody reads.

(Layers that read them: test_message_layers.py.)
"""

import contextlib
from dataclasses import replace

import numpy as np
import pytest
import torch

from hpcgnn.app.loaded_model import load_trained
from hpcgnn.errors import GraphError
from hpcgnn.graph.load import load_local_graph
from hpcgnn.graph.transforms.subgraphs import induced, with_halo
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.nn.registry import ignored
from hpcgnn.plan.model_spec import model_spec

from ..edge_rows import EDGE, GRAPHS, maps_of, rows_of, save
from ..runs import of_run, session_of, train_into
from ..training import build_trainer, configure
from .test_message_layers import expected_of


@pytest.mark.parametrize("number", [0, 1])
def test_shares_of_their_own_keep_the_rows(comm, edge_files, number):
    """Whoever trains on own nodes alone (tma, stale) finds the same row for an edge."""
    graph, rows = GRAPHS["random directed"], rows_of(GRAPHS["random directed"])
    with GraphFile(edge_files[graph.name]) as file:
        owner = maps_of(comm, file)[number]
        local = load_local_graph(file, owner, comm, 7, "keep", torch.float64, True, edge_features=True)
    share, mine = with_halo(local, comm), np.isin(graph.dst, local.original_id.numpy())
    block = share.inward.own
    dst = share.original_id[torch.repeat_interleave(torch.diff(block.indptr))]
    found = share.inward.edges.features[block.edge.long()]
    found = zip(dst.tolist(), share.original_id[block.indices.long()].tolist(), found.tolist())
    wanted = zip(graph.dst[mine].tolist(), graph.src[mine].tolist(), rows[mine].astype(float).tolist())
    assert sorted(found) == sorted(wanted)
    owner = np.zeros(graph.num_nodes, int)
    for rank, ids in enumerate(comm.allgather_object(local.original_id.numpy())):
        owner[ids] = rank
    own = owner[graph.src] == owner[graph.dst]
    expected = expected_of("gine of edges", replace(graph, src=graph.src[own], dst=graph.dst[own]), rows[own])
    expected.check(comm, replace(induced(local), num_nodes=graph.num_nodes), 7)


@pytest.mark.ranks(2)
@pytest.mark.parametrize(
    "options, words",
    [
        ({"model": "gat", "edge_features": "none"}, ""),
        ({"model": "gine"}, "expected edge features 4, got 3"),
        ({"model": "sage", "features": "edges"}, "expected features 4, got 3"),
    ],
)
def test_predictions_on_another_graph(comm, edge_files, session_path, shared_path, options, words):
    """Its features of edges are read if the run's were, and must then be as many."""
    graph, session = GRAPHS["random directed"], session_of(comm)
    train_into(comm, edge_files[graph.name], shared_path / "run", epochs=1, **options)
    for width in (EDGE, EDGE - 1):
        path = session_path / f"edge-other-{width}.h5"
        other = of_run(shared_path / "run", graph=save(comm, path, graph, edge_features=rows_of(graph)[:, :width]))
        with pytest.raises(GraphError, match=words) if words and width < EDGE else contextlib.nullcontext():
            found = load_trained(other, session, "last", other_graph=True)
            assert found.logits()[0].shape[1] == graph.num_classes
            assert found.trainer.plan.spec.edge_features == (EDGE if options["model"] == "gine" else 0)


def test_what_is_not_read_is_said(edge_files):
    path = edge_files["random undirected weighted"]
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
