"""Averaged parameters on every number of ranks: the curve and the averages against a dense serial run with torch's own
loss, from start to checkpoint.
"""

import graphs
import numpy as np
import oracle
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from hpcgnn.app.weights import export
from hpcgnn.engine.checkpoint import Checkpoint, checkpoints
from hpcgnn.plugins.averages import Averages

from ..runs import evaluated, of_run, train_into
from ..serial import serial_curve
from ..small import dense, written
from ..training import build_trainer, configure

pytestmark = pytest.mark.ranks(2)


@pytest.fixture(scope="module")
def odd(comm, session_path):
    """{name: (graph, layout, file)} of odd graphs."""
    made = [graphs.with_task(each) for each in (graphs.random_undirected(), graphs.random_directed(weighted=True))]
    return {graph.name: written(comm, session_path, graph, "classes") for graph in made}


@pytest.mark.parametrize("name", ["random undirected", "random directed weighted"])
def test_curve_and_average_are_those_of_torch(comm, odd, name):
    graph, _, path = odd[name]
    options = {"model": "sage", "layers": 2, "dropout": 0.0, "precision": "fp64", "lr": 0.02, "hidden": 6}
    config = configure(path, ema=0.8, **options)
    a, x, labels, train = dense(graph, "sage")

    def value_of(epoch, parameters):
        logits = oracle.model(a, x, parameters, kind="sage", layers=2)[train]
        return F.cross_entropy(logits, labels[train])

    for map_name in ("random", "one empty"):
        trainer, average = build_trainer(comm, config, map_name, 7), {}
        own = dict(trainer.model.named_parameters())

        def averaged(parameters):
            for name, now in parameters.items():
                average[name] = 0.8 * average[name] + 0.2 * now if name in average else now.clone()

        expected, last = serial_curve(value_of, own, 10, 0.02, after=averaged)
        found = [trainer.step(epoch) for epoch in range(10)]
        assert expected[-1] < expected[0]
        np.testing.assert_allclose(found, expected, rtol=1e-10)
        judged, kept = trainer.evaluated_state(), trainer.plugins.find(Averages).state("", 0)["averaged_model"]
        for name, wanted in average.items():
            torch.testing.assert_close(judged[name], wanted, rtol=1e-9, atol=1e-12)
            torch.testing.assert_close(kept[name], wanted, rtol=1e-9, atol=1e-12)
            torch.testing.assert_close(own[name], last[name], rtol=1e-9, atol=1e-12)
            assert not torch.equal(own[name], kept[name])
        logits = oracle.model(a, x, average, kind="sage", layers=2)
        metrics = trainer.evaluate()
        for split, number in {"train": graphs.TRAIN, "val": graphs.VAL, "test": graphs.TEST}.items():
            of_split = (graph.split == number) & (graph.labels >= 0)
            wanted = oracle.accuracy(logits.numpy()[of_split], graph.labels[of_split])
            assert metrics[split] == pytest.approx(wanted)


def test_averages_from_the_checkpoint_to_the_export(comm, graph, shared_path):
    run_dir = shared_path / "run"
    records = train_into(comm, graph, run_dir, model="sage", layers=2, ema=0.7, epochs=4, lr=0.05)
    found = Checkpoint(checkpoints(run_dir)[-1])
    averaged, metrics = found.group("averaged_model"), evaluated(comm, run_dir, "last")
    assert not any(torch.equal(found.model[name], tensor) for name, tensor in averaged.items())
    for split in ("train", "val", "test"):
        assert metrics[split] == pytest.approx(records[-1][split])
    if comm.rank == 0:
        export(of_run(run_dir), str(shared_path / "m.safetensors"), "torch", "last")
        exported = load_file(shared_path / "m.safetensors")
        assert averaged.keys() == found.model.keys()
        assert all(torch.equal(tensor, exported[name]) for name, tensor in averaged.items())
