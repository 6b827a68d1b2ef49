"""Link prediction on every number of ranks: the held-out edges, and whole jobs.

The curve and the ranks of edges are compared with a dense serial run.
"""

import csv
from collections import Counter

import graphs
import h5py
import numpy as np
import oracle
import pytest
import torch
from mpi.runs import evaluated, losses, predicted, summary, train_into
from mpi.serial import serial_curve
from mpi.small import edges_and_features, written
from mpi.training import build_trainer, configure, generated

from hpcgnn.errors import GraphError
from partition_tools.interface.arrays import save_graph

pytestmark = pytest.mark.ranks(2, 3)

SEED, MAPS = 5, ("random", "one empty")
LINK_SPLIT, LINK_POOL, LINK_NEGATIVE, LINK_CANDIDATE = 9, 10, 11, 12
SHARES = "0.7/0.2/0.1"
KS = (1, 3, 10, 20, 50, 100)


@pytest.fixture(scope="module")
def odd(comm, session_path):
    """{name: (graph, layout, file)}: several edges of a pair, self loops, isolated nodes, a rank without nodes."""
    made = [graphs.with_task(each) for each in (graphs.random_undirected(), graphs.random_directed(weighted=True))]
    return {graph.name: written(comm, session_path, graph, "links") for graph in made}


def oracle_sides(graph, seed=SEED):
    """(E,): 0, 1 or 2 for each edge, by the smaller and the larger id of its ends."""
    pairs = np.minimum(graph.src, graph.dst) * graph.num_nodes + np.maximum(graph.src, graph.dst)
    words = oracle.random_words(oracle.stream_key(seed, 0, 0, LINK_SPLIT), pairs, 1)[:, 0].astype(float) / 2**32
    sides = np.where(words < 0.7, 0, np.where(words < 0.9, 1, 2))
    return np.where(graph.src == graph.dst, 0, sides)


def drawn_splits(graph):
    """{split: {"edge": the edges that are held out}}, as `given.held` has them."""
    sides, ends = oracle_sides(graph), np.stack([graph.src, graph.dst], 1)
    return {split: {"edge": ends[sides == side]} for side, split in ((1, "val"), (2, "test"))}


def drawn_nodes(key, count, n):
    """The first `count` different nodes of a sequence of draws, in the order of their ids."""
    if count >= n:
        return np.arange(n)
    words = oracle.random_words(key, np.arange(200 * count, dtype=np.int64), 2).astype(np.int64)
    sequence = ((words[:, 0] << 31) | (words[:, 1] >> 1)) % n
    return np.array(sorted(list(dict.fromkeys(sequence.tolist()))[:count]))


def wrapped(number):
    """A whole number as 64 bits hold it."""
    return (number + 2**63) % 2**64 - 2**63


def negatives_of(edges, epoch, count, pool):
    """(E, count): the nodes drawn for training edges [(destination, source)]; equal edges get different draws."""
    seen, numbers = Counter(), []
    for i, j in edges:
        numbers.append(wrapped(i * 0x9E3779B97F4A7C15 + j + seen[i, j] * 0xBF58476D1CE4E5B9))
        seen[i, j] += 1
    key = oracle.stream_key(SEED, epoch, 0, LINK_NEGATIVE)
    return pool[oracle.random_words(key, np.array(numbers, np.int64), count).astype(np.int64) % len(pool)]


def scores_of(scorer, parameters, x, y):
    """(…,) of rows (…, F)."""
    product = x * y
    if scorer == "dot":
        return product.sum(-1)
    if scorer == "distmult":
        return (product * parameters["scorer.weight"]).sum(-1)
    hidden = torch.relu(product @ parameters["scorer.first.weight"] + parameters["scorer.first.bias"])
    return (hidden @ parameters["scorer.second.weight"] + parameters["scorer.second.bias"])[..., 0]


def embeddings_of(graph, sides, parameters):
    kept = sides == 0
    weight = None if graph.weight is None else graph.weight[kept]
    a = oracle.adjacency(graph.num_nodes, graph.src[kept], graph.dst[kept], weight)
    return oracle.model(a, torch.from_numpy(graph.features).double(), parameters, kind="sage", layers=2)


def oracle_losses(graph, parameters, scorer, epochs, lr, negatives, pool_size):
    """Dense full-batch training by torch's own optimizer."""
    sides = oracle_sides(graph)
    edges = [(i, j) for i, j in zip(graph.dst[sides == 0].tolist(), graph.src[sides == 0].tolist()) if i != j]
    into, source = torch.tensor(edges).T

    def value_of(epoch, parameters):
        pool = drawn_nodes(oracle.stream_key(SEED, epoch, 0, LINK_POOL), pool_size, graph.num_nodes)
        drawn = torch.from_numpy(negatives_of(edges, epoch, negatives, pool))
        h = embeddings_of(graph, sides, parameters)
        high = scores_of(scorer, parameters, h[source], h[into])
        low = scores_of(scorer, parameters, h[drawn], h[into][:, None])
        total = -torch.log(torch.sigmoid(high)).sum() - torch.log(1 - torch.sigmoid(low)).sum()
        return total / (len(edges) * (1 + negatives))

    return serial_curve(value_of, parameters, epochs, lr)


def pairs_of(parts):
    if "edge" in parts:
        return parts["edge"].tolist()
    return list(zip(parts["source_node"].tolist(), parts["target_node"].tolist()))


def oracle_metrics(graph, given, kind, table, count):
    """{split: {metric: value}}. table: (n, n) float32, of scores by source and target."""
    found = {}
    for split, parts in given.items():
        positive = [table[i, j] for i, j in pairs_of(parts)]
        if kind == "shared":
            ordered = sorted((table[i, j] for i, j in parts["edge_neg"].tolist()), reverse=True)
            found[split] = {f"hits@{k}": np.mean([x > ordered[k - 1] for x in positive]) for k in KS}
            continue
        ranks = []
        for number, (i, j) in enumerate(pairs_of(parts)):
            if kind == "each":
                others = [table[i, v] for v in parts["target_node_neg"][number].tolist()]
            else:
                others = [table[v, j] for v in drawn_candidates(graph, given, j, count)]
            best, worst = (sum(test(x) for x in others) for test in (positive[number].__lt__, positive[number].__le__))
            ranks.append((best + worst) / 2 + 1)
        found[split] = {"mrr": np.mean([1 / rank for rank in ranks])}
        found[split] |= {f"hits@{k}": np.mean([rank <= k for rank in ranks]) for k in KS}
    return found


def drawn_candidates(graph, given, target, count):
    """The nodes that a pair with this target is ranked among: neither itself nor any that has an edge to it."""
    known = set(zip(graph.src.tolist(), graph.dst.tolist()))
    for parts in given.values():
        known |= set(map(tuple, pairs_of(parts)))
        if "undirected" in graph.name:
            known |= {(j, i) for i, j in pairs_of(parts)}
    pool = drawn_nodes(oracle.stream_key(SEED, 0, 0, LINK_CANDIDATE), count, graph.num_nodes).tolist()
    return [v for v in pool if v != target and (v, target) not in known]


@pytest.mark.parametrize(
    "scorer, negatives, pool, candidates", [("dot", 1, 4096, 30), ("distmult", 3, 20, 1000), ("mlp", 2, 20, 30)]
)
@pytest.mark.parametrize("name", ["random undirected", "random directed weighted"])
def test_the_curve_and_the_ranks_of_a_serial_oracle(comm, odd, name, scorer, negatives, pool, candidates):
    graph, _, path = odd[name]
    config = configure(
        path,
        **{"model": "sage", "layers": 2, "hidden": 6, "dropout": 0.0, "precision": "fp64", "lr": 0.02},
        **{"task": "links", "scorer": scorer, "link_split": SHARES, "negatives": negatives},
        **{"negative_pool": pool, "link_negatives": candidates},
    )
    for map_name in MAPS:
        trainer = build_trainer(comm, config, map_name, 7)
        initial = {name: tensor.detach().clone() for name, tensor in trainer.model.named_parameters()}
        if map_name == MAPS[0]:
            begun, (expected, parameters) = initial, oracle_losses(graph, initial, scorer, 10, 0.02, negatives, pool)
            assert expected[-1] < expected[0]
            h = embeddings_of(graph, oracle_sides(graph), parameters)
            table = scores_of(scorer, parameters, h[:, None], h[None]).float().numpy()
            metrics = oracle_metrics(graph, drawn_splits(graph), "none", table, candidates)
        assert all(torch.equal(tensor, begun[name]) for name, tensor in initial.items()), "the oracle's beginning"
        found = [trainer.step(epoch) for epoch in range(10)]
        np.testing.assert_allclose(found, expected, rtol=1e-10)
        for name, tensor in trainer.model.named_parameters():
            np.testing.assert_allclose(tensor.detach(), parameters[name], rtol=1e-6, atol=1e-9, err_msg=name)
        measured = trainer.evaluate()
        for split, values in metrics.items():
            assert measured["links"][split] == pytest.approx(values, rel=1e-9), split
            assert measured[split] == measured["links"][split]["mrr"]
        assert np.isnan(measured["train"]) and trainer.buffers.nbytes <= trainer.buffers.limit


def test_the_loss_sends_every_row_once_each_way(comm, odd):
    """And the rows of the pool twice over all ranks, whatever the number of edges."""
    graph, where, path = odd["random undirected"]
    options = {"model": "sage", "task": "links", "link_split": SHARES, "negatives": 4, "negative_pool": 9}
    trainer = build_trainer(comm, configure(path, **options), "random", 7)
    embeddings = torch.ones(trainer.local.num_owned, 16, requires_grad=True)
    comm.ledger.take()
    trainer.objective.local_loss(embeddings).backward()
    kinds = {kind: entry.bytes_sent for kind, entry in comm.ledger.take().items()}
    kept = oracle_sides(graph) == 0
    rows = oracle.halo_rows(graph.src[kept], graph.dst[kept], where.owner("random"), comm.size)
    received, sent = sum(rows[comm.rank]), sum(rows[(comm.rank + k) % comm.size][k - 1] for k in range(1, comm.size))
    assert kinds == {"halo_forward": (sent + received + 9) * 64, "halo_backward": 9 * 64}


@pytest.fixture(scope="module")
def planted(comm, session_path):
    """Many small groups, whose nodes have edges among each other mostly."""
    spec = {"nodes": 600, "degree": 10, "features": 32, "classes": 40, "seed": 3, "noise": 0.3, "homophily": 0.95}
    return generated(comm, session_path / "planted-links.h5", 48, **spec)


@pytest.mark.smoke
@pytest.mark.ranks(2)
def test_a_run_from_the_options_to_embeddings(comm, planted, shared_path):
    run_dir = shared_path / "run"
    options = {"model": "sage", "task": "links", "layers": 2, "dropout": 0.0, "lr": 0.02, "link_negatives": 300}
    found = train_into(comm, planted, run_dir, **options, epochs=60, eval_every=5)
    of_all = summary(run_dir)
    assert of_all["task"] == "links" and of_all["metric"] == "mrr"
    assert of_all["best_val"] == max(record["val"] for record in found if "val" in record)
    chance = np.mean(1 / np.arange(1, 301))
    assert of_all["test_at_best_val"] > 10 * chance, "it has learned something"
    assert of_all["links"]["test"]["mrr"] == of_all["test_at_best_val"]
    measured = evaluated(comm, run_dir, metric="hits@10")
    assert measured["test"] == pytest.approx(of_all["links"]["test"]["hits@10"])
    assert measured["links"]["val"] == pytest.approx(of_all["links"]["val"], rel=1e-3)
    predicted(comm, run_dir, shared_path / "out.h5", "best")
    with h5py.File(shared_path / "out.h5") as file:
        assert file["embedding"].shape == (600, 16) and file["embedding"].dtype == np.float32
        assert "prediction" not in file and "class_names" not in file
        last = file["embedding"][:]
    for name in ("hidden.h5", "hidden.csv"):  # the hidden state in place of the last layer's, which is the logits
        predicted(comm, run_dir, shared_path / name, "best", layer=1, logits=True)
    with h5py.File(shared_path / "hidden.h5") as file:
        np.testing.assert_allclose(file["logit"][:], last, rtol=1e-5)
        hidden = file["embedding"][:]
        assert sorted(file) == ["embedding", "logit"] and not np.array_equal(hidden, last)
    with open(shared_path / "hidden.csv") as file:
        heading, *rows = csv.reader(file)
    assert heading == ["node", *(f"logit_{k}" for k in range(16)), *(f"embedding_{k}" for k in range(hidden.shape[1]))]
    np.testing.assert_allclose(np.array(rows, float)[:, 17:], hidden, rtol=1e-6)


@pytest.mark.ranks(2)
def test_a_graph_without_labels_and_features(comm, planted, shared_path):
    """It trains, and the run of another graph of the same features gives it embeddings."""
    run_dir, bare = shared_path / "run", shared_path / "bare.h5"
    if comm.rank == 0:
        save_graph(bare, edges_and_features(planted)[0], ranks=[1, 2, 3, 4])
    comm.barrier()
    options = {"model": "gcn", "layers": 2, "epochs": 3, "task": "links", "features": "degree"}
    train_into(comm, planted, run_dir, **options)
    train_into(comm, bare, shared_path / "bare", **options)
    evaluated(comm, shared_path / "bare")
    predicted(comm, run_dir, shared_path / "own.h5")
    predicted(comm, run_dir, shared_path / "other.h5", graph=bare)
    np.testing.assert_allclose(losses(run_dir), losses(shared_path / "bare"), rtol=1e-4)
    with h5py.File(shared_path / "own.h5") as own, h5py.File(shared_path / "other.h5") as other:
        np.testing.assert_allclose(own["embedding"][:], other["embedding"][:], rtol=1e-3, atol=1e-5)


def test_a_graph_without_edges(comm, session_path, shared_path):
    _, _, path = written(comm, session_path, graphs.with_task(graphs.no_edges()), "links")
    with pytest.raises(GraphError, match="the graph has no edge to train on") as caught:
        build_trainer(comm, configure(path, model="sage", task="links"), "random", 7)
    assert caught.value.everywhere
