"""Regression on every number of ranks: metrics against plain sums, the curve against a dense serial run, predictions in
the user's units, and the best epoch where less is better.
"""

import csv
import json
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import graphs
import h5py
import numpy as np
import oracle
import pytest
import torch

from hpcgnn.app.dry_run import check_training
from hpcgnn.app.evaluate import evaluate
from hpcgnn.app.predict import Request, predict
from hpcgnn.app.resuming import options_of_run
from hpcgnn.app.train import train
from hpcgnn.config import make_config
from hpcgnn.errors import ConfigError
from hpcgnn.tasks import regression
from partition_tools.cli.generate_graph import generate_graph
from partition_tools.cli.partition_graph import partition_graph
from partition_tools.generators.spec import Spec
from partition_tools.interface.arrays import save_graph

from ..small import written
from ..training import CHOICES, build_trainer, configure
from .test_metrics import kind, share  # noqa: F401  (a fixture)

pytestmark = pytest.mark.ranks(2)

N, TARGETS = 90, 3


def targets_of(graph, seed=7):
    """The graph with three columns of large numbers, of which some are not known, and some nodes without any."""
    random = np.random.default_rng(seed)
    labels = 1e4 + 30 * random.standard_normal((graph.num_nodes, TARGETS))
    labels[random.random(labels.shape) < 0.2] = np.nan
    labels[::10] = np.nan
    return replace(graphs.with_task(graph), labels=labels, num_classes=TARGETS)


def known_errors(outputs, targets, mask):
    """[(target column, output − target, target)] as exact fractions, one by one."""
    return [
        (column, Fraction(outputs[row, column]) - Fraction(targets[row, column]), Fraction(targets[row, column]))
        for row in np.flatnonzero(mask)
        for column in range(targets.shape[1])
        if not np.isnan(targets[row, column])
    ]


def plain_r2(outputs, targets, mask):
    values = []
    for column in range(targets.shape[1]):
        found = [(e, y) for c, e, y in known_errors(outputs, targets, mask) if c == column]
        mean = sum(y for _, y in found) / len(found)
        total = sum((y - mean) ** 2 for _, y in found)
        if total:
            values.append(float(1 - sum(e * e for e, _ in found) / total))
    return float(np.mean(values))


@pytest.mark.parametrize("offset", [0.0, 1e9])
def test_metrics_are_exact(comm, kind, offset):  # noqa: F811
    """Where the targets lie far from 0, too: Σy² − (Σy)²/n would have no digit left."""
    random = np.random.default_rng(3)
    targets = offset + random.standard_normal((N, TARGETS))
    targets[:, 2] = offset + 0.1  # all alike: no R² of this column
    outputs = targets + 0.5 * random.standard_normal((N, TARGETS))
    targets[random.random((N, TARGETS)) < 0.2] = np.nan
    mask = random.random(N) < 0.7
    errors = [e for _, e, _ in known_errors(outputs, targets, mask)]
    expected = {
        "mae": float(sum(map(abs, errors)) / len(errors)),
        "rmse": float(sum(e * e for e in errors) / len(errors)) ** 0.5,
        "r2": plain_r2(outputs, targets, mask),
    }
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
    parameters = {name: tensor.clone().requires_grad_() for name, tensor in parameters.items()}
    optimizer = torch.optim.Adam(parameters.values(), lr)
    losses = []
    for _ in range(epochs):
        error = (oracle.model(a, x, parameters, kind="sage", layers=2) - y)[~y.isnan()]
        size = error.abs()
        value = {
            "mse": error.square(),
            "mae": size,
            "huber": torch.where(size < 1, error.square() / 2, size - 0.5),
        }[loss].mean()
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        losses.append(float(value.detach()))
    return losses


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
    path = session_path / "planted-targets.h5"
    if comm.rank == 0:
        spec = Spec(nodes=600, degree=8, features=12, classes=4, seed=3, targets=2, noise=1.0)
        generate_graph("planted", path, spec)
        partition_graph(path, [1, 2, 3, 4], num_clusters=48)
    comm.barrier()
    return path


@pytest.mark.smoke
@pytest.mark.usefixtures("no_pictures")
@pytest.mark.parametrize("metric", ["auto", "r2"])
def test_a_run_from_the_options_to_predictions(comm, planted, shared_path, metric):
    run_dir, session = shared_path / "run", SimpleNamespace(comm=comm, threads=1)
    config = configure(
        planted,
        model="sage",
        layers=2,
        dropout=0.0,
        epochs=80,
        patience=12,
        lr=0.05,
        metric=metric,
        run_dir=str(run_dir),
    )
    assert train(config, session) == 0
    comm.barrier()
    summary = json.loads((run_dir / "summary.json").read_text())
    records = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    name, best = ("rmse", min) if metric == "auto" else ("r2", max)
    assert summary["task"] == "regression" and summary["metric"] == name
    assert summary["better"] == ("lower" if metric == "auto" else "higher")
    assert summary["best_val"] == best(record["val"] for record in records)
    assert records[summary["best_epoch"] - 1]["val"] == summary["best_val"]
    assert len(records) == min(80, summary["best_epoch"] + 12), "patience counts from the best epoch"
    options = options_of_run(run_dir, {"metric": "rmse"})
    for ending in ("h5", "csv"):
        out = shared_path / f"p.{ending}"
        assert evaluate(make_config(options, CHOICES), session, "best", str(out)) == 0
        comm.barrier()
    found = json.loads((run_dir / "evaluation.json").read_text())
    wanted, split, table, array = originals(planted, shared_path)
    np.testing.assert_array_equal(table, array)  # a text reads back as the number that it was
    for name in graphs_splits():
        error = (array - wanted)[split == graphs_splits()[name]]
        assert found[name] == pytest.approx(np.sqrt((error**2).mean()), rel=1e-12)
    deviation = wanted[split == graphs.TEST].std()
    assert 20 < array.mean() < 80 and found["test"] < 0.9 * deviation, "it has learned something, in the file's units"


@pytest.mark.usefixtures("no_pictures")
def test_another_graph_without_labels(comm, planted, shared_path):
    """The same graph without its targets: predictions are the same numbers, in the units that the run has."""
    session, run_dir = SimpleNamespace(comm=comm, threads=1), shared_path / "run"
    config = configure(planted, run_dir=str(run_dir), model="gcn", layers=2, epochs=3, target_scale="standard")
    assert train(config, session) == 0
    if comm.rank == 0:
        with h5py.File(planted) as file:
            ids, indptr = file["nodes/original_id"][:], file["topology/indptr"][:]
            ends = np.stack([ids[file["topology/indices"][:]], np.repeat(ids, np.diff(indptr))])
            features = file["nodes/features"][:][np.argsort(ids)]
        save_graph(shared_path / "bare.h5", ends, features, ranks=[1, 2, 3, 4])
    comm.barrier()
    for name, given in (("own", {}), ("bare", {"graph": str(shared_path / "bare.h5")})):
        request = Request(str(shared_path / f"{name}.h5p.h5"), logits=True, other_graph=bool(given))
        assert predict(make_config(options_of_run(run_dir, given), CHOICES), session, "last", request) == 0
    comm.barrier()
    with h5py.File(shared_path / "own.h5p.h5") as own, h5py.File(shared_path / "bare.h5p.h5") as bare:
        assert bare["prediction"].dtype == np.float64 and bare["prediction"].shape == (600, 2)
        np.testing.assert_allclose(bare["prediction"][:], own["prediction"][:], rtol=1e-5)
        assert 20 < own["prediction"][:].mean() < 80 and abs(own["logit"][:].mean()) < 5
    _one_target(comm, session, shared_path, ends if comm.rank == 0 else None, features if comm.rank == 0 else None)
    with pytest.raises(ConfigError, match="predicts real numbers per node and no probabilities") as caught:
        request = Request(str(shared_path / "no.h5"), probabilities=True)
        predict(make_config(options_of_run(run_dir, {}), CHOICES), session, "last", request)
    assert caught.value.everywhere and not (shared_path / "no.h5").exists()


def _one_target(comm, session, folder, ends, features):
    """One target is a vector as its labels are: an array (n, 1) is broadcast against (n,) to (n, n) without a word."""
    graph, run_dir = folder / "one.h5", folder / "one"
    if comm.rank == 0:
        labels = features[:, 0] * 3 + 50
        save_graph(graph, ends, features, labels, fractions=(0.5, 0.2), task="regression", ranks=[1, 2, 3, 4])
    comm.barrier()
    assert train(configure(graph, run_dir=str(run_dir), model="gcn", layers=2, epochs=3), session) == 0
    comm.barrier()
    for name in ("one.p.h5", "one.csv", "one.npy"):
        request = Request(str(folder / name), logits=name != "one.npy")
        assert predict(make_config(options_of_run(run_dir, {}), CHOICES), session, "last", request) == 0
    comm.barrier()
    with h5py.File(graph) as source, h5py.File(folder / "one.p.h5") as file:
        targets = source["nodes/labels"][:][np.argsort(source["nodes/original_id"][:])]
        assert file["prediction"].shape == file["logit"].shape == targets.shape == (600,)
        np.testing.assert_array_equal(file["prediction"][:], np.load(folder / "one.npy"))
        with open(folder / "one.csv") as table:
            rows = list(csv.reader(table))
        assert rows[0] == ["node", "value", "logit"]
        np.testing.assert_array_equal(np.array(rows[1:], float)[:, 1], file["prediction"][:])


def graphs_splits():
    return {"train": graphs.TRAIN, "val": graphs.VAL, "test": graphs.TEST}


def originals(path, folder):
    """(targets, split, predictions of the table, of the array), all in original order."""
    with h5py.File(path) as source, h5py.File(folder / "p.h5") as file:
        order = np.argsort(source["nodes/original_id"][:])
        targets, split = source["nodes/labels"][:][order].astype(float), source["nodes/split"][:][order]
        array = file["prediction"][:]
    with open(folder / "p.csv") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["node", "value_0", "value_1"] and [int(row[0]) for row in rows[1:]] == list(range(len(array)))
    return targets, split, np.array([row[1:] for row in rows[1:]], float), array


@pytest.mark.parametrize(
    "options, text",
    [
        ({"metric": "accuracy"}, "--metric accuracy does not fit the task regression .*expected rmse or mae or r2"),
        ({"loss": "cross-entropy"}, "--loss cross-entropy does not fit .*expected mse or mae or huber"),
        ({"task": "classification"}, "--task classification: the labels of .* are for regression"),
    ],
)
def test_what_does_not_fit_the_task(comm, planted, shared_path, options, text):
    with pytest.raises(ConfigError, match=text) as caught:
        train(configure(planted, run_dir=str(shared_path / "run"), **options), SimpleNamespace(comm=comm, threads=1))
    assert caught.value.everywhere and "\n" not in str(caught.value)
    comm.barrier()
    assert not (shared_path / "run").exists()
    if comm.rank == 0:
        with pytest.raises(ConfigError, match=text):
            check_training(configure(planted, **options), [comm.size])
