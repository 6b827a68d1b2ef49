"""Inputs of nodes that are not the file's: ones, degrees, and features that are learned, on every number of ranks,
beside a dense serial run with one table of embeddings.
"""

import json
from dataclasses import replace
from types import SimpleNamespace

import graphs
import h5py
import numpy as np
import oracle
import pytest
import torch

from hpcgnn.app.dry_run import check_training
from hpcgnn.app.evaluate import evaluate
from hpcgnn.app.resuming import options_of_run
from hpcgnn.app.train import train
from hpcgnn.config import make_config
from hpcgnn.engine.checkpoint import checkpoints, learned_path, newest_readable
from hpcgnn.errors import CheckpointError, ConfigError, GraphError
from hpcgnn.plugins.learned_features import LearnedFeatures
from partition_tools.cli.generate_graph import generate_graph
from partition_tools.cli.partition_graph import partition_graph
from partition_tools.generators.spec import Spec

from ..small import written
from ..training import CHOICES, build_trainer, configure

pytestmark = pytest.mark.ranks(2)

SEED, WIDTH, LEARNED_FEATURE = 5, 3, 8  # the purpose of the draws is part of what a seed means


@pytest.fixture(scope="module")
def files(comm, session_path):
    """{name: (graph, layout, file)} of odd graphs without features."""
    bare = [
        replace(graphs.with_task(graph), features=None)
        for graph in (graphs.random_undirected(), graphs.random_directed())
    ]
    return {graph.name: written(comm, session_path, graph, "bare") for graph in bare}


@pytest.fixture(scope="module")
def planted(comm, session_path):
    """{number of features: file}."""
    paths = {features: session_path / f"inputs-{features}.h5" for features in (0, 6)}
    if comm.rank == 0:
        for features, path in paths.items():
            generate_graph("planted", path, Spec(nodes=500, degree=8, features=features, classes=4, seed=3, noise=1.0))
            partition_graph(path, [1, 2, 3, 4], num_clusters=40)
    comm.barrier()
    return paths


def table(n, width=WIDTH, seed=SEED):
    """The initial values of learned features, by the definition."""
    words = oracle.random_words(oracle.stream_key(seed, 0, 0, LEARNED_FEATURE), np.arange(n), width)
    return (words / 2.0**31 - 1) * np.sqrt(3)


def oracle_losses(graph, parameters, a, fixed, rows, epochs, options):
    """Dense training of two layers of sage and the rows by torch's own optimizer, both clipped by one norm."""
    labels, train = torch.from_numpy(graph.labels), torch.from_numpy((graph.split == 1) & (graph.labels >= 0))
    parameters = {name: tensor.clone().requires_grad_() for name, tensor in parameters.items()}
    rows = torch.from_numpy(rows).requires_grad_()
    kind = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}[options["optimizer"]]
    optimizer = kind([*parameters.values(), rows], options["lr"], weight_decay=options["weight_decay"])
    losses = []
    for _ in range(epochs):
        x = torch.cat([fixed, rows], 1)
        value = oracle.loss(oracle.model(a, x, parameters, kind="sage", layers=2), labels, train)
        optimizer.zero_grad()
        value.backward()
        if options["clip_norm"]:
            torch.nn.utils.clip_grad_norm_([*parameters.values(), rows], options["clip_norm"])
        optimizer.step()
        losses.append(float(value.detach()))
    return losses, rows.detach()


@pytest.mark.parametrize("halo", ["rows", "least"])
@pytest.mark.parametrize("inputs", ["learned:3", "degree+learned:3"])
@pytest.mark.parametrize("name", ["random undirected", "random directed"])
def test_the_curve_of_a_serial_oracle(comm, files, name, inputs, halo):
    graph, where, path = files[name]
    a = oracle.adjacency(graph.num_nodes, graph.src, graph.dst)
    counts = torch.from_numpy(np.bincount(graph.dst, minlength=graph.num_nodes)).double()
    columns = [torch.ones_like(counts), torch.log1p(counts)] if "degree" in inputs else []
    fixed = torch.stack(columns, 1) if columns else torch.zeros(graph.num_nodes, 0, dtype=torch.float64)
    for map_name, more in (
        ("random", {"optimizer": "adam", "weight_decay": 1e-3, "clip_norm": 0.0}),
        ("one empty", {"optimizer": "sgd", "weight_decay": 1e-2, "clip_norm": 0.05}),
    ):
        options = {"lr": 0.05, **more}
        small = {"model": "sage", "layers": 2, "hidden": 6, "dropout": 0.0, "precision": "fp64", "momentum": 0.0}
        config = configure(path, features=inputs, seed=SEED, halo=halo, **small, **options)
        trainer = build_trainer(comm, config, map_name, 7)
        mine = trainer.graph.ids.numpy()
        learned = trainer.plugins.find(LearnedFeatures)
        assert learned.rows.shape == (len(mine), WIDTH), "a rank holds the rows of its own nodes alone"
        np.testing.assert_allclose(learned.rows.detach(), table(graph.num_nodes)[mine], rtol=1e-15)
        initial = {name: tensor.detach().clone() for name, tensor in trainer.model.named_parameters()}
        expected, rows = oracle_losses(graph, initial, a, fixed, table(graph.num_nodes), 10, options)
        found = [trainer.step(epoch) for epoch in range(10)]
        assert expected[-1] < expected[0]
        np.testing.assert_allclose(found, expected, rtol=1e-6 if more["clip_norm"] else 1e-10)  # torch adds 1e-6
        np.testing.assert_allclose(learned.rows.detach(), rows[mine], rtol=0, atol=1e-6)


def test_rows_are_never_summed_over_ranks(comm, planted):
    """What an all-reduce carries are the gradients of the model alone."""
    trainer = build_trainer(comm, configure(planted[0], features="learned:8", hidden=4), "metis", 60)
    comm.ledger.take()
    trainer.step(0)
    weights = sum(parameter.numel() for parameter in trainer.model.parameters())
    sent = comm.ledger.take()
    reduced = sent["allreduce"].bytes_sent if "allreduce" in sent else 0
    assert reduced == 4 * weights
    assert all(entry.bytes_sent < 4096 for kind, entry in sent.items() if kind not in ("halo_forward", "halo_backward"))


def run(comm, path, run_dir, **options):
    config = configure(path, features="degree+learned:5", layers=2, dropout=0.2, run_dir=str(run_dir), **options)
    assert train(config, SimpleNamespace(comm=comm, threads=1)) == 0
    comm.barrier()
    return [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_a_resumed_run_on_another_map_is_the_run_that_was_not_stopped(comm, planted, shared_path, optimizer):
    whole = run(comm, planted[0], shared_path / "whole", epochs=9, optimizer=optimizer, assignment="random-nodes")
    run(comm, planted[0], shared_path / "parts", epochs=5, optimizer=optimizer, assignment="random-nodes")
    parts = run(comm, planted[0], shared_path / "parts", epochs=9, optimizer=optimizer, resume=True)
    np.testing.assert_allclose([r["loss"] for r in parts], [r["loss"] for r in whole], rtol=1e-4)
    assert whole[-1]["loss"] < whole[0]["loss"]
    if comm.rank == 0:
        assert [learned_path(shared_path / "parts", epoch).exists() for epoch in (5, 9)] == [True, True]
        with h5py.File(learned_path(shared_path / "whole", 9)) as file:
            names = {"adam": {"rows", "best", "exp_avg", "exp_avg_sq"}, "sgd": {"rows", "best", "momentum_buffer"}}
            assert set(file) == names[optimizer] and file["rows"].shape == (500, 5)
    for weights in ("best", "last"):
        config = make_config(options_of_run(shared_path / "parts", {}), CHOICES)
        assert evaluate(config, SimpleNamespace(comm=comm, threads=1), weights) == 0
        comm.barrier()
        found = json.loads((shared_path / "parts" / "evaluation.json").read_text())
        record = parts[found["epoch"] - 1]
        assert [found[split] for split in ("train", "val", "test")] == pytest.approx(
            [record[split] for split in ("train", "val", "test")], abs=0.011
        )


@pytest.mark.usefixtures("no_pictures")
def test_a_checkpoint_without_its_rows_is_damaged(comm, planted, shared_path):
    run(comm, planted[0], shared_path / "run", epochs=4, checkpoint_every=2)
    if comm.rank == 0:
        told = []
        assert newest_readable(shared_path / "run", told.append) == checkpoints(shared_path / "run")[-1] and not told
        learned_path(shared_path / "run", 4).write_bytes(b"")
        assert newest_readable(shared_path / "run", told.append) == checkpoints(shared_path / "run")[0]
        assert "learned-features.h5 cannot be read" in told[0]
    comm.barrier()
    trainer = build_trainer(comm, configure(planted[0], features="degree+learned:5", layers=2), "metis")
    with pytest.raises(CheckpointError, match="cannot be read"):
        trainer.plugins.load(shared_path / "run", 4)
    other = build_trainer(comm, configure(planted[0], features="degree+learned:4", layers=2), "metis")
    with pytest.raises(CheckpointError, match=r"rows has shape \(500, 5\), expected \(500, 4\)"):
        other.plugins.load(shared_path / "run", 2)


@pytest.mark.usefixtures("no_pictures")
def test_what_is_ignored_is_said_once(comm, planted, shared_path):
    config = configure(planted[6], features="degree", epochs=1, run_dir=str(shared_path / "run"))
    assert train(config, SimpleNamespace(comm=comm, threads=1)) == 0
    comm.barrier()
    log = (shared_path / "run" / "log.txt").read_text()
    assert log.count("the 6 features of the graph are ignored by --features degree") == 1


def test_a_graph_without_features_says_what_to_do(comm, planted, shared_path):
    with pytest.raises(GraphError, match="has no node features; .*--features degree, or learned:64") as caught:
        train(configure(planted[0], run_dir=str(shared_path / "run")), SimpleNamespace(comm=comm, threads=1))
    assert caught.value.everywhere
    if comm.rank == 0:
        with pytest.raises(GraphError, match="has no node features"):
            check_training(configure(planted[0]), [comm.size])
        check_training(configure(planted[0], features="learned:8"), [comm.size])


@pytest.mark.parametrize(
    "options, text",
    [
        *[
            ({"features": each}, "expected file, none, degree, edges, learned:D")
            for each in ("", "learned", "learned:0")
        ],
        *[({"features": each}, "expected file, none") for each in ("none+degree", "file+file", "degree:3", "file:2")],
    ],
)
def test_features_that_there_are_not(options, text):
    with pytest.raises(ConfigError, match=text):
        make_config({"graph": "g.h5", **options}, CHOICES)


def test_learned_features_are_refused_where_no_rank_can_send_to_another_alone(
    comm, planted, monkeypatch, job_session, shared_path
):
    monkeypatch.setattr(comm, "pairwise", False, raising=False)
    options = {"model": "gcn", "features": "learned:4", "epochs": 1, "run_dir": str(shared_path / "run")}
    with pytest.raises(
        ConfigError, match="--features learned:4: learned features are gathered .* two ranks alone"
    ) as caught:
        train(configure(planted[0], **options), job_session)
    assert caught.value.everywhere and not (shared_path / "run").exists()
