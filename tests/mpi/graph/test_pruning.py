"""Pruned rows: exactly the rows that the loss can see are computed and sent. (Curves: engine/test_curves.py.)"""

import numpy as np
import pytest

from hpcgnn.graph.transforms.pruning import WORTHWHILE
from hpcgnn.graphfile.storage import SPLITS, GraphFile

from ..gathering import sent_both_ways
from ..training import CLASSES, GRAPHS, build_trainer, configure, few_train, traffic_of


def whole_graph(path, ranks):
    """(src, dst, owner of each node, whether it trains) of a graph file."""
    with GraphFile(path) as file:
        indptr, src = file.read("topology/indptr"), file.read("topology/indices").astype(np.int64)
        owner = np.repeat(file.cluster_map("metis", ranks)[0], np.diff(file.read("clusters/offsets")))
        train = file.read("nodes/split") == SPLITS["train"]
    return src, np.repeat(np.arange(len(indptr) - 1), np.diff(indptr)), owner, train


@pytest.mark.parametrize("name", GRAPHS)
def test_rows_sent_are_those_that_are_needed(comm, session_path, name):
    path = few_train(comm, session_path)[name]
    src, dst, owner, train = whole_graph(path, comm.size)
    needed = [train]  # the outputs of the last layer that the loss sees, of the one before, …
    for _ in range(2):
        needed.append(needed[-1].copy())
        needed[-1][src[needed[-2][dst]]] = True
    trainer = build_trainer(comm, configure(path, model="sage", keep_input="always", prune="auto"), "metis")
    trainer.step(0)
    step = traffic_of(trainer, 1)
    assert needed[2].mean() < WORTHWHILE and all(trainer.views.shares), "this graph prunes all layers"
    wanted = [0, 0]
    for layer, width, outputs in ((1, 16, needed[1]), (2, CLASSES, needed[0])):
        assert sum(comm.allgather_object(len(trainer.views.shares[layer].outputs))) == outputs.sum()
        away = outputs[dst] & (owner[src] != owner[dst])
        # Distinct pairs of a row and a rank of another owner that computes with it, forwards and backwards.
        for direction, (row, user) in enumerate(((src, dst), (dst, src))):
            wanted[direction] += 4 * width * len(set(zip(row[away], owner[user[away]])))
    assert [sum(each) for each in zip(*comm.allgather_object(sent_both_ways(step)))] == wanted


def test_ranks_without_training_nodes_and_unpruned_graphs(comm, graph):
    """Where all nodes are needed, or the schedule is none that prunes, there is no share."""
    trainer = build_trainer(comm, configure(graph, prune="auto"), "metis")
    assert [share is not None for share in trainer.views.shares] == [False, False, True]
    assert not build_trainer(comm, configure(graph, prune="auto", halo_dtype="int8"), "metis").views.shares
    assert not build_trainer(comm, configure(graph, schedule="bns"), "metis").views.shares
