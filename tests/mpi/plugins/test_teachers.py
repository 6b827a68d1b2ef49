"""A mean teacher (`--consistency`) and outputs of another run (`--distill`) in the loss, beside a dense serial run."""

import graphs
import numpy as np
import oracle
import pytest
import torch

from hpcgnn.errors import ConfigError
from hpcgnn.plugins.consistency import SHARPNESS

from ..small import written
from ..training import build_trainer, configure

pytestmark = pytest.mark.ranks(1, 2, 3, 4)

WEIGHT, DECAY, SURE = 3.0, 0.6, 0.4
TEACHER, TEMPERATURE = 0.5, 2.0


def oracle_run(graph, parameters, teacher, epochs, lr, warmup, reliable):
    """The losses of two layers of sage. reliable: least probability of the teacher's class, 0: all nodes count."""
    a = oracle.adjacency(graph.num_nodes, graph.src, graph.dst, graph.weight)
    x, labels = torch.from_numpy(graph.features).double(), torch.from_numpy(graph.labels)
    train = torch.from_numpy(graph.split == graphs.TRAIN) & (labels >= 0)
    parameters = {name: tensor.clone().requires_grad_() for name, tensor in parameters.items()}
    optimizer, average, losses, sure_ones = torch.optim.Adam(parameters.values(), lr), None, [], []

    def outputs(of):
        return oracle.model(a, x, of, kind="sage", layers=2)

    for epoch in range(epochs):
        with torch.no_grad():
            wanted = outputs(average or parameters).softmax(1)
        sure = ~train & (wanted.amax(1) >= SURE)
        sure_ones += [int(sure.sum())] * (epoch >= warmup)
        wanted = wanted**SHARPNESS
        wanted /= wanted.sum(1, keepdim=True)
        logits = outputs(parameters)
        loss = oracle.loss(logits, labels, train)
        loss = loss + WEIGHT * (epoch >= warmup) * ((logits.softmax(1) - wanted)[sure] ** 2).sum() / max(
            1, int(sure.sum())
        )
        soft = (teacher / TEMPERATURE).softmax(1)
        apart = (soft * (soft.log() - (logits / TEMPERATURE).log_softmax(1))).sum(1)
        if reliable:
            p = teacher.softmax(1).amax(1)
            counts = ~train & (p >= reliable)
            assert 0 < int(counts.sum()) < int((~train).sum())
            loss = loss + TEACHER * TEMPERATURE**2 * (p * apart)[counts].sum() / int(train.sum())
        else:
            loss = loss + TEACHER * TEMPERATURE**2 * apart.sum() / len(labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
        now = {name: tensor.detach().clone() for name, tensor in parameters.items()}
        if epoch < warmup:
            continue
        average = average and {name: DECAY * old + (1 - DECAY) * now[name] for name, old in average.items()} or now
    assert 0 < min(sure_ones) and max(sure_ones) < int((~train).sum())
    return losses


@pytest.mark.parametrize(
    "make, warmup, reliable", [(graphs.random_undirected, 0, 0.0), (graphs.random_directed, 2, 0.5)]
)
def test_the_curve_of_a_serial_oracle(comm, session_path, make, warmup, reliable):
    graph, _, path = written(comm, session_path, graphs.with_task(make(weighted=True)), "teachers")
    teacher = np.random.default_rng(3).standard_normal((graph.num_nodes, 3))
    file = session_path / f"teacher-{graph.num_nodes}-{make.__name__}.npy"
    if comm.rank == 0:
        np.save(file, teacher)
    comm.barrier()
    options = {"model": "sage", "layers": 2, "dropout": 0.0, "precision": "fp64", "lr": 0.02, "hidden": 6}
    options |= {"consistency": WEIGHT, "consistency_decay": DECAY, "consistency_confidence": SURE, "prune": "auto"}
    options |= {"consistency_warmup": warmup, "distill_confidence": reliable}
    options |= {"distill": str(file), "distill_weight": TEACHER, "distill_temperature": TEMPERATURE}
    trainer = build_trainer(comm, configure(path, **options), "one empty", 7)
    initial = {name: tensor.detach().clone() for name, tensor in trainer.model.named_parameters()}
    expected = oracle_run(graph, initial, torch.from_numpy(teacher), 6, 0.02, warmup, reliable)
    np.testing.assert_allclose([trainer.step(epoch) for epoch in range(6)], expected, rtol=1e-6)
    with pytest.raises(ConfigError, match="expected floating-point numbers"):
        build_trainer(comm, configure(path, model="sage", distill=str(wrong_file(comm, session_path))), "random")


def wrong_file(comm, folder):
    """An array of another shape."""
    if comm.rank == 0:
        np.save(folder / "wrong.npy", np.zeros((3, 3)))
    comm.barrier()
    return folder / "wrong.npy"


def test_what_does_not_go_together_is_refused(comm):
    for options, message in (
        ({"schedule": "stale", "consistency": 1.0}, "--consistency"),
        ({"inductive": True, "distill": "x.npy"}, "learn from all nodes"),
    ):
        with pytest.raises(ConfigError, match=message):
            configure("graph.h5", model="sage", **options)
