"""Regression on every number of ranks: metrics against plain sums, and the curve against a dense serial run.

Predictions have the user's units, and the best epoch has the least metric where less is better.
"""

from dataclasses import replace
from fractions import Fraction

import graphs
import h5py
import numpy as np
import oracle
import pandas
import pytest
import torch

from hpcgnn.errors import ConfigError
from hpcgnn.tasks import regression
from partition_tools.interface.arrays import save_graph

from ..runs import evaluated, predicted, summary, train_into
from ..serial import serial_curve
from ..small import edges_and_features, written
from ..training import build_trainer, configure, generated
from .test_metrics import kind, share  # noqa: F401  (a fixture)

pytestmark = pytest.mark.ranks(2)

N, TARGETS = 90, 3


def targets_of(graph, seed=7):
    """The graph with three columns of large numbers; some values are unknown, and some nodes have none."""
    random = np.random.default_rng(seed)
    labels = 1e4 + 30 * random.standard_normal((graph.num_nodes, TARGETS))
    labels[random.random(labels.shape) < 0.2] = np.nan
    labels[::10] = np.nan
    return replace(graphs.with_task(graph), labels=labels, num_classes=TARGETS)


@pytest.mark.parametrize("offset", [0.0, 1e9])
def test_metrics_are_exact(comm, kind, offset):  # noqa: F811
    """Where the targets lie far from 0, too: Σy² − (Σy)²/n would have no digit left."""
    random = np.random.default_rng(3)
    targets = offset + random.standard_normal((N, TARGETS))
    targets[:, 2] = offset + 0.1  # all alike: no R² of this column
    outputs = targets + 0.5 * random.standard_normal((N, TARGETS))
    targets[random.random((N, TARGETS)) < 0.2] = np.nan
    mask = random.random(N) < 0.7
    known = [np.flatnonzero(mask & ~np.isnan(column)) for column in targets.T]
    pairs = [[tuple(map(Fraction, (outputs[i, k], targets[i, k]))) for i in rows] for k, rows in enumerate(known)]
    errors = [output - target for column in pairs for output, target in column]
    squares, shares = sum(error * error for error in errors), []
    for column in pairs[:2]:
        mean = sum(target for _, target in column) / len(column)
        about = sum((target - mean) ** 2 for _, target in column)
        shares.append(float(1 - sum((output - target) ** 2 for output, target in column) / about))
    expected = {"mae": float(sum(map(abs, errors)) / len(errors)), "r2": np.mean(shares)}
    expected["rmse"] = float(squares / len(errors)) ** 0.5
    mine = share(comm, kind, outputs, targets, mask)
    for name, value in expected.items():
        metric = regression.Regression.metrics[name]
        assert metric.score(*mine, comm) == pytest.approx(value, rel=1e-12), name
        assert metric.lower == (name != "r2")
    mean, deviation = regression.spread(mine[1][mine[2]], comm)
    chosen = targets[mask] - offset
    np.testing.assert_allclose(mean - offset, np.nanmean(chosen, 0), atol=2e-7 if offset else 1e-12)
    np.testing.assert_allclose(deviation[:2], np.nanstd(chosen, 0)[:2], rtol=1e-7 if offset else 1e-12)
    assert deviation[2] == 0


@pytest.fixture(scope="module")
def odd(comm, session_path):
    """{name: (graph, layout, file)} of odd graphs with targets, with a map that leaves a rank without nodes."""
    made = [targets_of(graph) for graph in (graphs.random_undirected(), graphs.random_directed(weighted=True))]
    return {graph.name: written(comm, session_path, graph, "targets") for graph in made}


def oracle_losses(graph, parameters, loss, scaled, epochs, lr):
    """Dense full-batch training of two layers of sage by torch's own optimizer."""
    a = oracle.adjacency(graph.num_nodes, graph.src, graph.dst, graph.weight)
    x, y = torch.from_numpy(graph.features).double(), torch.from_numpy(graph.labels)
    y = torch.where((torch.from_numpy(graph.split) == graphs.TRAIN)[:, None], y, torch.nan)
    if scaled:
        mean = y.nanmean(0)
        y = (y - mean) / (y - mean).square().nanmean(0).sqrt()

    def value_of(epoch, parameters):
        error = (oracle.model(a, x, parameters, kind="sage", layers=2) - y)[~y.isnan()]
        size = error.abs()
        huber = torch.where(size < 1, error.square() / 2, size - 0.5)
        return {"mse": error.square(), "mae": size, "huber": huber}[loss].mean()

    return serial_curve(value_of, parameters, epochs, lr)[0]


@pytest.mark.parametrize("loss, scale", [("mse", "standard"), ("mae", "standard"), ("huber", "none")])
@pytest.mark.parametrize("name", ["random undirected", "random directed weighted"])
def test_the_curve_of_a_serial_oracle(comm, odd, name, loss, scale):
    graph, where, path = odd[name]
    options = {"model": "sage", "layers": 2, "dropout": 0.0, "precision": "fp64", "lr": 0.02}
    config = configure(path, loss=loss, target_scale=scale, hidden=6, task="regression", **options)
    for map_name in ("random", "one empty"):
        trainer = build_trainer(comm, config, map_name, 7)
        initial = {name: tensor.detach().clone() for name, tensor in trainer.model.named_parameters()}
        expected = oracle_losses(graph, initial, loss, scale == "standard", 12, 0.02)
        found = [trainer.step(epoch) for epoch in range(12)]
        assert expected[-1] < expected[0]
        np.testing.assert_allclose(found, expected, rtol=1e-10)


@pytest.fixture(scope="module")
def planted(comm, session_path):
    spec = {"nodes": 600, "degree": 8, "features": 12, "classes": 4, "seed": 3, "targets": 2, "noise": 1.0}
    return generated(comm, session_path / "planted-targets.h5", 48, **spec)


@pytest.mark.smoke
@pytest.mark.parametrize("metric", ["auto", "r2"])
def test_a_run_from_the_options_to_predictions(comm, planted, shared_path, metric):
    run_dir = shared_path / "run"
    options = {"model": "sage", "layers": 2, "dropout": 0.0, "epochs": 80, "patience": 12, "lr": 0.05}
    found = train_into(comm, planted, run_dir, **options, metric=metric)
    of_all = summary(run_dir)
    name, best = ("rmse", min) if metric == "auto" else ("r2", max)
    assert of_all["task"] == "regression" and of_all["metric"] == name
    assert of_all["better"] == ("lower" if metric == "auto" else "higher")
    assert of_all["best_val"] == best(record["val"] for record in found)
    assert found[of_all["best_epoch"] - 1]["val"] == of_all["best_val"]
    assert len(found) == min(80, of_all["best_epoch"] + 12), "patience counts from the best epoch"
    measured = evaluated(comm, run_dir, metric="rmse")
    for ending in ("h5", "csv"):
        predicted(comm, run_dir, shared_path / f"p.{ending}", "best")
    with h5py.File(planted) as source, h5py.File(shared_path / "p.h5") as file:
        order, array = np.argsort(source["nodes/original_id"][:]), file["prediction"][:]
        wanted, split = source["nodes/labels"][:][order].astype(float), source["nodes/split"][:][order]
    table = pandas.read_csv(shared_path / "p.csv", dtype=str)
    assert list(table) == ["node", "value_0", "value_1"] and table["node"].tolist() == [*map(str, range(len(array)))]
    np.testing.assert_array_equal(table.iloc[:, 1:].astype(float), array)  # a text reads back as the number that it was
    for name, number in {"train": graphs.TRAIN, "val": graphs.VAL, "test": graphs.TEST}.items():
        error = (array - wanted)[split == number]
        assert measured[name] == pytest.approx(np.sqrt((error**2).mean()), rel=1e-12)
    deviation = wanted[split == graphs.TEST].std()
    assert 20 < array.mean() < 80 and measured["test"] < 0.9 * deviation, "it has learned, in the file's units"


def test_another_graph_without_labels(comm, planted, shared_path):
    """The same graph without its targets: predictions are the same numbers, in the units that the run has."""
    run_dir, bare, (ends, features) = shared_path / "run", shared_path / "bare.h5", edges_and_features(planted)
    train_into(comm, planted, run_dir, model="gcn", layers=2, epochs=3, target_scale="standard")
    if comm.rank == 0:
        save_graph(bare, ends, features, ranks=[1, 2, 3, 4])
    comm.barrier()
    predicted(comm, run_dir, shared_path / "own.p.h5", logits=True)
    predicted(comm, run_dir, shared_path / "bare.p.h5", graph=bare, logits=True)
    with h5py.File(shared_path / "own.p.h5") as own, h5py.File(shared_path / "bare.p.h5") as other:
        assert other["prediction"].dtype == np.float64 and other["prediction"].shape == (600, 2)
        np.testing.assert_allclose(other["prediction"][:], own["prediction"][:], rtol=1e-5)
        assert 20 < own["prediction"][:].mean() < 80 and abs(own["logit"][:].mean()) < 5
    with pytest.raises(ConfigError, match="predicts real numbers per node and no probabilities") as caught:
        predicted(comm, run_dir, shared_path / "no.h5", probabilities=True)
    assert caught.value.everywhere and not (shared_path / "no.h5").exists()


def test_one_target_is_a_vector(comm, planted, shared_path):
    """As its labels are: an array (n, 1) is broadcast against (n,) to (n, n) without a word."""
    graph, run_dir, (ends, features) = shared_path / "one.h5", shared_path / "one", edges_and_features(planted)
    if comm.rank == 0:
        labels = features[:, 0] * 3 + 50
        save_graph(graph, ends, features, labels, fractions=(0.5, 0.2), task="regression", ranks=[1, 2, 3, 4])
    comm.barrier()
    train_into(comm, graph, run_dir, model="gcn", layers=2, epochs=1)
    for name in ("one.p.h5", "one.csv"):
        predicted(comm, run_dir, shared_path / name, logits=True)
    table = pandas.read_csv(shared_path / "one.csv", dtype=str)
    with h5py.File(graph) as source, h5py.File(shared_path / "one.p.h5") as file:
        assert file["prediction"].shape == file["logit"].shape == source["nodes/labels"].shape == (600,)
        assert list(table) == ["node", "value", "logit"]
        np.testing.assert_array_equal(table["value"].astype(float), file["prediction"][:])
