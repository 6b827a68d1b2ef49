"""Inputs of nodes that are not the file's: ones, degrees, and learned features, on every number of ranks.

The reference is a dense serial run with one table of embeddings.
"""

import functools
from dataclasses import replace

import graphs
import h5py
import numpy as np
import oracle
import pytest
import torch
from mpi.runs import check_same, evaluated, log_of, summary, train_into
from mpi.serial import serial_curve
from mpi.small import written
from mpi.training import build_trainer, configure, generated, plugin_of, traffic_of

from hpcgnn.engine.checkpoint import Checkpoint, checkpoint_path, checkpoints
from hpcgnn.errors import CheckpointError, ConfigError
from hpcgnn.extras.recipes.learned_features import LearnedFeatures, learned_path

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
    spec = {"nodes": 500, "degree": 8, "classes": 4, "seed": 3, "noise": 1.0}
    return {n: generated(comm, session_path / f"inputs-{n}.h5", 40, features=n, **spec) for n in (0, 6)}


def table(n, width=WIDTH, seed=SEED):
    """The initial values of learned features, by the definition."""
    words = oracle.random_words(oracle.stream_key(seed, 0, 0, LEARNED_FEATURE), np.arange(n), width)
    return (words / 2.0**31 - 1) * np.sqrt(3)


def oracle_losses(graph, parameters, a, fixed, rows, epochs, options):
    """Dense training of two layers of sage and the rows by torch's own optimizer, both clipped by one norm."""
    labels, train = torch.from_numpy(graph.labels), torch.from_numpy((graph.split == 1) & (graph.labels >= 0))

    def value_of(epoch, both):
        x = torch.cat([fixed, both["rows"]], 1)
        return oracle.loss(oracle.model(a, x, both, kind="sage", layers=2), labels, train)

    given = {name: options[name] for name in ("lr", "weight_decay", "clip_norm")}
    kind = {"adam": torch.optim.Adam, "sgd": functools.partial(torch.optim.SGD, momentum=0.9)}[options["optimizer"]]
    losses, found = serial_curve(value_of, {**parameters, "rows": torch.from_numpy(rows)}, epochs, kind=kind, **given)
    return losses, found["rows"]


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
        small = {"model": "sage", "layers": 2, "hidden": 6, "dropout": 0.0, "precision": "fp64"}
        config = configure(path, features=inputs, seed=SEED, halo=halo, **small, **options)
        trainer = build_trainer(comm, config, map_name, 7)
        mine = trainer.graph.ids.numpy()
        learned = plugin_of(trainer, LearnedFeatures)
        assert learned.rows.shape == (len(mine), WIDTH), "a rank holds the rows of its own nodes alone"
        np.testing.assert_allclose(learned.rows.detach(), table(graph.num_nodes)[mine], rtol=1e-15)
        initial = {name: tensor.detach().clone() for name, tensor in trainer.model.named_parameters()}
        expected, rows = oracle_losses(graph, initial, a, fixed, table(graph.num_nodes), 10, options)
        found = [trainer.step(epoch) for epoch in range(10)]
        assert expected[-1] < expected[0]
        np.testing.assert_allclose(found, expected, rtol=1e-6 if more["clip_norm"] else 1e-10)  # torch adds 1e-6
        np.testing.assert_allclose(learned.rows.detach(), rows[mine], rtol=0, atol=1e-6)


def test_rows_are_never_summed_over_ranks(comm, planted):
    """An all-reduce carries the gradients of the model alone."""
    trainer = build_trainer(comm, configure(planted[0], features="learned:8", hidden=4), "metis", 60)
    weights, sent = sum(parameter.numel() for parameter in trainer.model.parameters()), traffic_of(trainer, 0)
    reduced = sent["allreduce"].bytes_sent if "allreduce" in sent else 0
    assert reduced == 4 * weights
    assert all(entry.bytes_sent < 4096 for kind, entry in sent.items() if kind not in ("halo_forward", "halo_backward"))


def run(comm, path, run_dir, **options):
    usual = {"features": "degree+learned:5", "layers": 2, "dropout": 0.2, "partition": ""}
    return train_into(comm, path, run_dir, **{**usual, **options})


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_a_resumed_run_on_another_map_is_the_run_that_was_not_stopped(comm, planted, shared_path, optimizer):
    options = {"optimizer": optimizer, "partition": "random-nodes"}
    whole = run(comm, planted[0], shared_path / "whole", epochs=9, **options)
    run(comm, planted[0], shared_path / "parts", epochs=5, **options)
    parts = run(comm, planted[0], shared_path / "parts", epochs=9, optimizer=optimizer, resume=True)
    np.testing.assert_allclose([r["loss"] for r in parts], [r["loss"] for r in whole], rtol=1e-4)
    assert whole[-1]["loss"] < whole[0]["loss"]
    if comm.rank == 0:
        assert [learned_path(shared_path / "parts", epoch).exists() for epoch in (5, 9)] == [True, True]
        with h5py.File(learned_path(shared_path / "whole", 9)) as file:
            names = {"adam": {"rows", "best", "exp_avg", "exp_avg_sq"}, "sgd": {"rows", "best", "momentum_buffer"}}
            assert set(file) == names[optimizer] and file["rows"].shape == (500, 5)


def test_a_pause_changes_no_bit_and_the_end_reports_the_best_epoch(comm, graph, shared_path):
    options = {"features": "file+learned:4", "hidden": 8, "lr": 1.0, "checkpoint_every": 4}
    for name, stops in (("whole", [12]), ("run", [6, 12])):
        for epochs in stops:
            train_into(comm, graph, shared_path / name, epochs=epochs, resume=epochs > stops[0], **options)
    check_same(shared_path / "run", shared_path / "whole")
    of_all, found = summary(shared_path / "run"), evaluated(comm, shared_path / "run")
    assert of_all["best_epoch"] < 12 and of_all["metrics"]["val"]["accuracy"] == of_all["best_val"]
    assert of_all["metrics"] == found["metrics"]
    assert of_all["learned_features"] == 4 * 300


def test_a_checkpoint_without_its_rows_is_damaged(comm, planted, shared_path):
    run(comm, planted[0], shared_path / "run", epochs=4, checkpoint_every=2)
    if comm.rank == 0:
        told = []
        first, last = checkpoints(shared_path / "run")
        assert Checkpoint.newest(shared_path / "run", told.append).path == last and not told
        learned_path(shared_path / "run", 4).write_bytes(b"")
        assert Checkpoint.newest(shared_path / "run", told.append).path == first
        assert "learned-features.h5 cannot be read" in told[0]
    comm.barrier()
    trainer = build_trainer(comm, configure(planted[0], features="degree+learned:5", layers=2), "metis")
    with pytest.raises(CheckpointError, match="cannot be read"):
        plugin_of(trainer, LearnedFeatures).load(Checkpoint(checkpoint_path(shared_path / "run", 4)))
    other = build_trainer(comm, configure(planted[0], features="degree+learned:4", layers=2), "metis")
    with pytest.raises(CheckpointError, match=r"rows has shape \(500, 5\), expected \(500, 4\)"):
        plugin_of(other, LearnedFeatures).load(Checkpoint(checkpoint_path(shared_path / "run", 2)))


def test_what_is_ignored_is_said_once(comm, planted, shared_path):
    run(comm, planted[6], shared_path / "run", features="degree", epochs=1)
    log = log_of(shared_path / "run")
    assert log.count("the 6 features of the graph are ignored by --features degree") == 1


def test_learned_features_are_refused_where_no_rank_can_send_to_another_alone(comm, planted, monkeypatch, shared_path):
    monkeypatch.setattr(comm, "pairwise", False, raising=False)
    words = "--features learned:4: learned features are gathered .* two ranks alone"
    with pytest.raises(ConfigError, match=words) as caught:
        run(comm, planted[0], shared_path / "run", features="learned:4", epochs=1)
    assert caught.value.everywhere and not (shared_path / "run").exists()
