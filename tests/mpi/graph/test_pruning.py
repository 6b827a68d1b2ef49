"""Pruned rows: the same training curve, and exactly the rows that the loss can see are computed and sent."""

import numpy as np
import pytest
import torch

from hpcgnn.graph.transforms.pruning import WORTHWHILE
from hpcgnn.graphfile.storage import SPLITS, GraphFile

from ..training import CLASSES, GRAPHS, build_trainer, configure, make_graphs

EPOCHS = 3
MODELS = {
    "gcn": {"model": "gcn"},
    "sage": {"model": "sage", "norm": "layer"},
    "gin": {"model": "gin", "residual": True},
    "gat": {"model": "gat", "heads": 2, "hidden": 8, "attention_dropout": 0.3},
    "sage, every step from the features": {"model": "sage", "input_dropout": "raw", "hidden": 32},
    "max at the end": {"model": "sage", "aggregator": "max"},
    "sgc": {"model": "sgc", "keep_input": "always"},
}


@pytest.fixture(scope="module")
def paths(comm, session_path):
    """Graphs of which one node in forty is a training node, and few are within two steps of those."""
    return make_graphs(comm, session_path, nodes=600, train=1 / 40, degree=3)


DIRECTED = ("sage", "gat")
CASES = [("undirected", kind) for kind in MODELS] + [("directed multi-label", kind) for kind in DIRECTED]


@pytest.mark.parametrize("name, kind", CASES)
def test_the_curve_is_that_of_all_rows(comm, paths, name, kind):
    curves, parameters = [], []
    for prune in ("auto", "none"):
        config = configure(paths[name], precision="fp64", prune=prune, **MODELS[kind])
        trainer = build_trainer(comm, config, "metis", rows=7)
        curves.append([trainer.step(epoch) for epoch in range(EPOCHS)])
        parameters.append(torch.cat([p.detach().flatten() for p in trainer.model.parameters()]))
        pruned = sum(share is not None for share in trainer.views.shares)
        assert (pruned > 0) == (prune == "auto" and kind != "max at the end")
    np.testing.assert_allclose(*curves, rtol=1e-9)
    torch.testing.assert_close(*parameters, rtol=1e-7, atol=1e-9)


class WholeGraph:
    """All edges and owners, to count from."""

    def __init__(self, path, ranks):
        with GraphFile(path) as file:
            indptr, self.src = file.read("topology/indptr"), file.read("topology/indices").astype(np.int64)
            clusters, (owners, _) = np.diff(file.read("clusters/offsets")), file.cluster_map("metis", ranks)
            self.train = file.read("nodes/split") == SPLITS["train"]
        self.dst = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
        self.owner = np.repeat(owners, clusters)

    def layers(self, count):
        """Boolean R_L, R_(L-1), … over all nodes."""
        needed = [self.train]
        for _ in range(count):
            more = needed[-1].copy()
            more[self.src[needed[-1][self.dst]]] = True
            needed.append(more)
        return needed

    def rows_sent(self, outputs):
        """(forwards, backwards): distinct pairs of a row and a rank of another owner that computes with it."""
        away = outputs[self.dst] & (self.owner[self.src] != self.owner[self.dst])
        src, dst = self.src[away], self.dst[away]
        return len(set(zip(src, self.owner[dst]))), len(set(zip(dst, self.owner[src])))


@pytest.mark.parametrize("name", GRAPHS)
def test_rows_sent_are_those_that_are_needed(comm, paths, name):
    whole = WholeGraph(paths[name], comm.size)
    needed = whole.layers(2)
    trainer = build_trainer(
        comm, configure(paths[name], model="sage", hidden=16, keep_input="always", prune="auto"), "metis"
    )
    trainer.step(0)
    comm.ledger.take()
    trainer.step(1)
    step = comm.ledger.take()
    assert needed[2].mean() < WORTHWHILE and all(trainer.views.shares), "this graph prunes all layers"
    for layer, outputs in ((1, needed[1]), (2, needed[0])):
        computed = comm.total(torch.tensor([len(trainer.views.shares[layer].outputs)], dtype=torch.float64), "plan")
        assert computed == outputs.sum()
    for direction, kind in enumerate(("halo_forward", "halo_backward")):
        sent = comm.total(torch.tensor([step[kind].bytes_sent if kind in step else 0], dtype=torch.float64), "plan")
        widths = (16, needed[1]), (CLASSES, needed[0])
        assert sent == sum(4 * width * whole.rows_sent(outputs)[direction] for width, outputs in widths)


def test_ranks_without_training_nodes_and_unpruned_graphs(comm, session_path):
    """Where all nodes are needed, or the schedule is none that prunes, there is no share."""
    path = make_graphs(comm, session_path, nodes=300)["undirected"]
    trainer = build_trainer(comm, configure(path, prune="auto"), "metis")
    assert [share is not None for share in trainer.views.shares] == [False, False, True]
    assert not build_trainer(comm, configure(path, prune="auto", halo_dtype="int8"), "metis").views.shares
    assert not build_trainer(comm, configure(path, schedule="bns"), "metis").views.shares
