"""Pruned rows: exactly the rows that the loss can see are computed and sent. (Curves: engine/test_curves.py.)"""

import numpy as np
import pytest
import torch

from hpcgnn.graph.transforms.pruning import WORTHWHILE
from hpcgnn.graphfile.storage import SPLITS, GraphFile

from ..training import CLASSES, GRAPHS, build_trainer, configure, few_train


@pytest.fixture(scope="module")
def few(comm, session_path):
    return few_train(comm, session_path)


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
def test_rows_sent_are_those_that_are_needed(comm, few, name):
    whole = WholeGraph(few[name], comm.size)
    needed = whole.layers(2)
    trainer = build_trainer(
        comm, configure(few[name], model="sage", hidden=16, keep_input="always", prune="auto"), "metis"
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


def test_ranks_without_training_nodes_and_unpruned_graphs(comm, graph):
    """Where all nodes are needed, or the schedule is none that prunes, there is no share."""
    trainer = build_trainer(comm, configure(graph, prune="auto"), "metis")
    assert [share is not None for share in trainer.views.shares] == [False, False, True]
    assert not build_trainer(comm, configure(graph, prune="auto", halo_dtype="int8"), "metis").views.shares
    assert not build_trainer(comm, configure(graph, schedule="bns"), "metis").views.shares
