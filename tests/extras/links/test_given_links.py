"""Held-out edges and negatives that come with a graph, on every number of ranks, against loops over single pairs that
have OGB's definitions.
"""

import shutil

import graphs
import h5py
import numpy as np
import pytest
import torch
from mpi.runs import predicted, train_into
from mpi.training import build_trainer, configure

from hpcgnn.app.graph_checks import check_splits
from hpcgnn.errors import ConfigError, HpcgnnError
from hpcgnn.extras.links import given as given_pairs
from hpcgnn.extras.links import ranks as pair_ranks
from hpcgnn.extras.links.task import Links
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.tasks.registry import resolve_task
from partition_tools.interface.arrays import save_graph

from .given import GRAPHS, written_with_links
from .test_links import KS, embeddings_of, oracle, oracle_metrics, pairs_of, scores_of

pytestmark = pytest.mark.ranks(2, 3)


@pytest.fixture(scope="module")
def files(comm, session_path):
    return written_with_links(comm, session_path, "given")


@pytest.mark.parametrize(
    "name, kind, scorer, map_name",
    [
        ("random undirected", "shared", "dot", "one empty"),
        ("random undirected", "each", "mlp", "random"),
        ("random undirected", "none", "distmult", "random"),
        ("random directed weighted", "shared", "mlp", "random"),
        ("random directed weighted", "each", "dot", "one empty"),
        ("random directed weighted", "none", "dot", "one empty"),
    ],
)
def test_the_figures_of_ogbs_evaluators(comm, files, monkeypatch, name, kind, scorer, map_name):
    """And all edges of the graph are for training."""
    monkeypatch.setattr(given_pairs, "_PIECE", 20)
    monkeypatch.setattr(pair_ranks, "_PIECE", 10)
    graph, (given, path) = GRAPHS[name], files[name, kind]
    options = {"model": "sage", "layers": 2, "hidden": 6, "dropout": 0.0, "precision": "fp64", "task": "links"}
    options |= {"scorer": scorer, "link_negatives": 15}
    trainer = build_trainer(comm, configure(path, **options), map_name, 7)
    alone = build_trainer(comm, configure(path, link_split="1/0/0", **options), map_name, 7)
    assert [trainer.step(epoch) for epoch in range(3)] == [alone.step(epoch) for epoch in range(3)]
    parameters = {key: tensor.detach() for key, tensor in trainer.model.named_parameters()}
    h = embeddings_of(graph, np.zeros(len(graph.src)), parameters)
    table = scores_of(scorer, parameters, h[:, None], h[None]).float().numpy()
    comm.ledger.take()
    measured = trainer.evaluate()
    for split, values in oracle_metrics(graph, given, kind, table, 15).items():
        assert measured["links"][split] == pytest.approx(values, rel=1e-9), split
    chosen = "hits@50" if kind == "shared" else "mrr"
    assert trainer.evaluator.name == chosen and measured["val"] == measured["links"]["val"][chosen]
    assert trainer.evaluator.counts == {"train": 0, "val": 31, "test": 12} and np.isnan(measured["train"])
    assert set(comm.ledger.take()) <= {"evaluation"}
    assert trainer.buffers.nbytes <= trainer.buffers.limit


@pytest.mark.parametrize("kind", ["shared", "each"])
def test_the_row_of_a_source_comes_once_to_a_rank(comm, files, kind):
    """However many pairs and negatives it has there; and of nodes for each edge, scores and counts go around."""
    given, path = files["random undirected", kind]
    owner = graphs.layout(GRAPHS["random undirected"], comm.size).owner("random")
    trainer = build_trainer(comm, configure(path, model="sage", task="links"), "random", 7)
    comm.ledger.take()
    with torch.no_grad():
        trainer.evaluator.scores(torch.ones(trainer.local.num_owned, 16))
    expected = 0
    for parts in given.values():
        ends = [np.array(pairs_of(parts)).T]
        if kind == "shared":
            ends.append(parts["edge_neg"].T)
        else:
            negatives = parts["target_node_neg"]
            ends.append(np.stack([np.repeat(ends[0][0], negatives.shape[1]), negatives.reshape(-1)]))
            expected += len(ends[0][0]) * (4 + 2 * 8)
        for source, target in ends:
            rows = oracle.halo_rows(source, target, owner, comm.size)
            expected += 64 * sum(rows[(comm.rank + k) % comm.size][k - 1] for k in range(1, comm.size))
    sent = comm.ledger.take()
    assert sent["halo_forward"].bytes_sent == expected if expected else "halo_forward" not in sent


@pytest.fixture(scope="module")
def ring(comm, session_path):
    """{name: file} of a ring, whose pairs have each negative six times, or which has none."""
    found = {name: session_path / f"ring-{name}.h5" for name in ("held out", "plain")}
    if comm.rank == 0:
        given = {"edge": [[0, 5], [1, 7]], "edge_neg": [[0, 5], [1, 7]] * 6}
        ends = np.stack([np.arange(12), np.roll(np.arange(12), 1)])
        features, labels = np.random.default_rng(0).random((12, 2), np.float32), np.arange(12) % 2
        for path, links in zip(found.values(), ({"test": given}, None)):
            save_graph(path, ends, features, labels, links=links, undirected=True, ranks=[1, 2, 3, 4])
    comm.barrier()
    return found


def test_few_negatives_for_all_are_beaten(comm, ring):
    """As OGB has it: with fewer than K negatives every edge is a hit at K. With its own pair among them six times, the
    better of two edges is none at 6. And a split may be missing.
    """
    path = ring["held out"]
    trainer = build_trainer(comm, configure(path, model="sage", task="links"), "metis", 7)
    found = trainer.evaluate()
    assert found["links"]["test"] == dict(zip((f"hits@{k}" for k in KS), (0, 0, 0.5, 1, 1, 1)))
    assert np.isnan(found["val"]) and trainer.evaluator.counts == {"train": 0, "val": 0, "test": 2}
    with pytest.raises(ConfigError, match="expected a graph with validation edges"):
        check_splits(trainer.evaluator.counts, configure(path, task="links", patience=3), comm.rank, "edges")


def test_what_leaves_the_nodes(comm, files, session_path):
    path = session_path / "given-damaged.h5"
    if comm.rank == 0:
        shutil.copy(files["random undirected", "shared"][1], path)
        with h5py.File(path, "r+", libver="latest") as file:
            file["links/test/negatives"][5, 1] = 10**6
    comm.barrier()
    with pytest.raises(HpcgnnError, match="links/test/negatives leave the nodes 0") as caught:
        build_trainer(comm, configure(path, model="sage", task="links"), "random", 7)
    assert caught.value.everywhere


@pytest.mark.ranks(2)
def test_a_graph_without_held_out_edges_gets_embeddings(comm, ring, shared_path):
    """Of all its edges, by a run whose held-out edges came with its graph."""
    train_into(comm, ring["held out"], shared_path / "run", model="sage", layers=2, epochs=2, task="links")
    predicted(comm, shared_path / "run", shared_path / "own.h5")
    predicted(comm, shared_path / "run", shared_path / "plain.h5", graph=ring["plain"])
    with h5py.File(shared_path / "own.h5") as own, h5py.File(shared_path / "plain.h5") as plain:
        np.testing.assert_allclose(own["embedding"], plain["embedding"], rtol=1e-5, atol=1e-7)


def test_what_is_said_before(comm, ring):
    path = ring["held out"]
    with GraphFile(path) as file:
        config = resolve_task(configure(path, task="links", link_negatives=7), file.meta)
        assert "without effect: --link-negatives" in Links().remarks(config, file)[-1]
        drawn = resolve_task(configure(path, task="links", link_split="0.8/0.1/0.1"), file.meta)
        assert Links().remarks(drawn, file) == [] and drawn.run.metric == "mrr"
    with pytest.raises(ConfigError, match="--metric mrr does not fit the task links .*expected hits@50 or hits@1"):
        build_trainer(comm, configure(path, task="links", features="degree", metric="mrr"), "metis", 7)
