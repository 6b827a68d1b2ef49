"""The task `fields` on every number of ranks, against a dense serial run; replicas, resumed runs and forecasts."""

import dataclasses

import graphs
import h5py
import numpy as np
import oracle
import pytest
import torch
from mpi.runs import check_same, evaluated, of_run, session_of, summary, train_into
from mpi.serial import serial_curve
from mpi.training import build_trainer, configure

from hpcgnn.errors import HpcgnnError
from hpcgnn.extras.meshes import windows
from hpcgnn.extras.meshes.rollout import RolloutRequest, roll_out
from hpcgnn.graphfile.field_series import FieldSeries
from hpcgnn.graphfile.storage import write_graph

pytestmark = pytest.mark.ranks(2, 3)

SEED, EPOCHS, LR, BATCH, HISTORY, ROLLOUT, NOISE, P = 5, 2, 0.01, 3, 2, 2, 0.1, 0.2
ORDER, NOISE_DRAWS = 16, 20
TRAJECTORY = np.repeat([0, 1, 2, 3], [8, 6, 5, 4]).astype(np.int32)
SPLIT = np.repeat([1, 1, 2, 3], [8, 6, 5, 4]).astype(np.uint8)
COLUMNS = {"velocity": 2, "forcing": 1}
OPTIONS = {"task": "fields", "model": "sage", "layers": 2, "hidden": 8, "dropout": P, "precision": "fp64"}
OPTIONS |= {"input_fields": "velocity,forcing", "target_fields": "velocity", "field_weights": "velocity=2"}
OPTIONS |= {"history": HISTORY, "rollout": ROLLOUT, "noise": NOISE, "snapshots_per_step": BATCH}
OPTIONS |= {"lr": LR, "epochs": EPOCHS}


@pytest.fixture(scope="module")
def file(comm, session_path):
    """(graph, fields and weights by original id, path) of a file whose maps leave a rank without nodes."""
    graph, random = graphs.with_task(graphs.random_directed()), np.random.default_rng(8)
    path, n = session_path / f"fields-{comm.size}.h5", graph.num_nodes
    values = {name: random.standard_normal((len(SPLIT), n, width)).cumsum(0) + 3 for name, width in COLUMNS.items()}
    volume, given = random.random(n).astype(np.float32), (random.random(n) < 0.2).astype(np.uint8)
    if comm.rank == 0:
        where = graphs.layout(graph, comm.size)
        data, order = graphs.graph_data(graph, where.order, where.offsets), where.order
        times = np.concatenate([np.arange(count) * 0.5 for count in np.bincount(TRAJECTORY)])
        series = FieldSeries({name: each[:, order] for name, each in values.items()}, times, TRAJECTORY, SPLIT)
        data = dataclasses.replace(data, features=None, snapshots=series, volume=volume[order], given=given[order])
        maps = [
            (name, count, owner if count > 1 else owner * 0, {})
            for name, owner in where.maps.items()
            for count in (1, comm.size)
        ]
        write_graph(path, data, maps)
    comm.barrier()
    return (
        graph,
        {name: torch.from_numpy(each) for name, each in values.items()},
        volume.astype(np.float64) * (given == 0),
        path,
    )


def starts(split, steps):
    """The last times of inputs of windows, one after another."""
    found = []
    for t in range(len(SPLIT)):
        used = [t + k for k in range(1 - HISTORY, steps + 1)]
        if used[0] >= 0 and used[-1] < len(SPLIT) and len({TRAJECTORY[each] for each in used}) == 1:
            judged = used if split == 1 else used[HISTORY:]
            found += [t] * all(SPLIT[each] == split for each in judged)
    return found


class Serial:
    """One process with the whole graph."""

    def __init__(self, graph, values, weight):
        self.a = oracle.adjacency(graph.num_nodes, graph.src, graph.dst)
        self.inputs, self.targets = torch.cat([values["velocity"], values["forcing"]], 2), values["velocity"]
        self.weight, self.given = torch.from_numpy(weight / weight.sum()), torch.from_numpy(weight == 0)[:, None]
        begins = starts(1, 1)
        changes = torch.stack([self.targets[t + 1] - self.targets[t] for t in begins]).flatten(0, 1)
        seen = torch.stack([self.inputs[t] for t in begins]).flatten(0, 1)
        self.mean, self.deviation = seen.mean(0), seen.std(0, correction=0)
        self.shift, self.factor = changes.mean(0), changes.std(0, correction=0)

    def steps(self, parameters, start, count, epoch=0, p=0.0, noise=None):
        """Yield (standardised outputs, standardised targets, predicted values, true values)."""
        seen = [self.inputs[start + k] for k in range(1 - HISTORY, 1)]
        if noise is not None:
            seen[-1] = seen[-1] + noise
        for t in range(start + 1, start + count + 1):
            x = torch.cat([(each - self.mean) / self.deviation for each in seen], 1)
            z = oracle.model(self.a, x, parameters, kind="sage", layers=2, dropout=p, seed=SEED, epoch=epoch)
            now, true = seen[-1][:, :2], self.targets[t]
            values = torch.where(self.given, true, now + z * self.factor + self.shift)
            yield z, (true - now - self.shift) / self.factor, values, true
            seen = [*seen[1:], torch.cat([values, self.inputs[t][:, 2:]], 1)]

    def noise(self, epoch, start):
        words = oracle.random_words(oracle.stream_key(SEED, epoch, start, NOISE_DRAWS), np.arange(len(self.a)), 6)
        uniform = (torch.from_numpy(words.astype(float)) + 0.5) / 2**32
        normal = (-2 * uniform[:, :3].log()).sqrt() * (2 * torch.pi * uniform[:, 3:]).cos()
        return torch.where(self.given, 0.0, normal * self.deviation * torch.tensor([NOISE, NOISE, 0.0]))

    def loss(self, parameters, start, epoch):
        noise = self.noise(epoch, start)
        steps = [
            (z - y).square().mean(1) @ self.weight
            for z, y, *_ in self.steps(parameters, start, ROLLOUT, epoch, P, noise)
        ]
        return sum(steps) / ROLLOUT

    def mean_square(self, parameters, split):
        """(C,), of one step."""
        pairs = [next(self.steps(parameters, t, 1))[2:] for t in starts(split, 1)]
        return torch.stack([self.weight @ (value - true).square() for value, true in pairs]).mean(0)


def batches(block):
    """[(epoch, [(number, start)])] of all steps, in the order that is drawn."""
    found, begins = [], starts(1, ROLLOUT)
    for epoch in range(EPOCHS):
        blocks = [begins[first : first + block] for first in range(0, len(begins), block)]
        words = oracle.random_words(oracle.stream_key(SEED, epoch, 0, ORDER), np.arange(len(begins)), 2)
        within = [sorted(each, key=lambda start: words[begins.index(start), 1]) for each in blocks]
        order = list(enumerate(start for each in np.argsort(words[: len(blocks), 0]) for start in within[each]))
        found += [(epoch, order[first : first + BATCH]) for first in range(0, len(order), BATCH)]
    return found


@pytest.mark.parametrize("map_name", ["random", "one empty"])
def test_losses_and_metrics_of_the_oracle(comm, file, map_name, monkeypatch):
    graph, values, weight, path = file
    monkeypatch.setattr(windows, "BLOCK", 4)
    trainer = build_trainer(comm, configure(path, **OPTIONS), map_name)
    serial, plan = Serial(graph, values, weight), batches(4)
    initial = {name: each.detach().clone() for name, each in trainer.model.named_parameters()}
    found = [trainer.step(epoch) for epoch in range(EPOCHS)]

    def value_of(step, parameters):
        epoch, windows_of_step = plan[step]
        each = [serial.loss(parameters, start, epoch | number << 32) for number, start in windows_of_step]
        return sum(each) / len(each)

    losses, parameters = serial_curve(value_of, initial, len(plan), LR)
    for epoch in range(EPOCHS):
        steps = [step for step, (of, _) in enumerate(plan) if of == epoch]
        weights = [len(plan[step][1]) for step in steps]
        assert found[epoch] == pytest.approx(np.average([losses[step] for step in steps], weights=weights), rel=1e-8)
    for name, each in trainer.model.named_parameters():
        torch.testing.assert_close(each.detach(), parameters[name], rtol=1e-6, atol=1e-8)
    scores = trainer.evaluate()
    for split, number in (("val", 2), ("test", 3)):
        square = serial.mean_square(parameters, number)
        assert scores["fields"][split]["velocity"] == pytest.approx(float(square.mean().sqrt()), rel=1e-7)
        assert scores[split] == pytest.approx(float((square / serial.factor.square()).mean().sqrt()), rel=1e-7)


@pytest.mark.ranks(2)
def test_replicas_resumed_runs_and_forecasts(comm, file, session_path, shared_path):
    """Ranks that are replicas have the same curve, and a run that was stopped goes on bit for bit. An evaluation and
    forecasts on other shapes have the same numbers; behind the last snapshot there is no error.
    """
    *_, path = file
    runs = {replicas: session_path / f"fields-{comm.size}-{replicas}" for replicas in (1, comm.size)}
    rows = {
        replicas: train_into(comm, path, folder, partition="random", replicas=replicas, **OPTIONS)
        for replicas, folder in runs.items()
    }
    for one, other in zip(*rows.values(), strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-11)
        assert one["fields"]["test"]["velocity"] == pytest.approx(other["fields"]["test"]["velocity"], rel=1e-7)
    stopped = session_path / f"fields-{comm.size}-stopped"
    train_into(comm, path, stopped, partition="random", **(OPTIONS | {"epochs": 1}))
    train_into(comm, path, stopped, partition="random", resume=True, **OPTIONS)
    if comm.rank == 0:
        check_same(stopped, runs[1])
    found = summary(runs[1])["forecast"]["rmse"]["test"]["velocity"]
    assert found == pytest.approx(summary(runs[comm.size])["forecast"]["rmse"]["test"]["velocity"], rel=1e-7)
    again = evaluated(comm, runs[comm.size], partition="random")
    assert again["forecast"]["rmse"]["test"]["velocity"] == pytest.approx(found, rel=1e-9) and len(found) == 2
    written = session_path / f"forecast-{comm.size}.h5"
    request = RolloutRequest(str(written), 20, 4)
    assert roll_out(of_run(runs[1], partition="random"), session_of(comm), "best", request) == 0
    with h5py.File(written) as forecast:
        assert forecast["time"][:].tolist() == [1.0, 1.5, 2.0, 2.5]
        velocity, (_, values, weight, _) = torch.from_numpy(forecast["snapshots/velocity"][:]), file
    for step, error in enumerate(found):
        square = (velocity[step] - values["velocity"][21 + step]).square().T @ torch.from_numpy(weight / weight.sum())
        assert float(square.mean().sqrt()) == pytest.approx(error, rel=1e-7)
    given = torch.from_numpy(weight == 0)
    assert torch.equal(velocity[3][given], values["velocity"][22][given])


WRONG = {
    "no such field": ({"input_fields": "wind"}, "expected fields of the graph file"),
    "a field twice": ({"target_fields": "velocity,velocity"}, "a name twice"),
    "weights of others": ({"field_weights": "forcing=1"}, "expected names of targets"),
    "no change of others": (
        {"input_fields": "forcing", "target_kind": "change", "rollout": 1, "noise": 0.0},
        "take --target-kind value",
    ),
    "too long": ({"rollout": 9}, "no times for training"),
    "replicas": ({"replicas": 5, "snapshots_per_step": 5}, "expected a divisor of the number of ranks"),
    "idle replicas": ({"replicas": 4}, "expected --snapshots-per-step 4 or a multiple"),
    "no target seen": ({"input_fields": "forcing"}, "expected a target among the inputs"),
    "batch norm": ({"norm": "batch", "replicas": 2}, "expected --norm layer or none"),
    "stored rows": ({"schedule": "lazy"}, "expected no --inductive, and --schedule sar"),
}


@pytest.mark.parametrize("name", WRONG)
def test_options_that_do_not_fit(comm, file, session_path, name):
    options, expected = WRONG[name]
    with pytest.raises(HpcgnnError, match=expected):
        train_into(comm, file[-1], session_path / "wrong", partition="random", **(OPTIONS | options))
