"""Label smoothing, class weights and averaged parameters, on every number of ranks: the curve and the averages against
a dense serial run with torch's own loss and torch's own average, from start to checkpoint.
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
import torch.nn.functional as F
from safetensors.torch import load_file
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from hpcgnn.app.evaluate import evaluate
from hpcgnn.app.export_weights import export
from hpcgnn.app.resuming import options_of_run
from hpcgnn.app.train import train
from hpcgnn.config import make_config
from hpcgnn.engine.checkpoint import checkpoints, read_averaged, read_checkpoint
from hpcgnn.errors import CheckpointError, ConfigError
from hpcgnn.plugins.averages import Averages

from ..small import written
from ..training import CHOICES, build_trainer, configure, make_graphs

pytestmark = pytest.mark.ranks(2)

CLASSES = 6  # of which only the first few have training nodes


@pytest.fixture(scope="module")
def odd(comm, session_path):
    """{name: (graph, layout, file)} of odd graphs whose classes are out of balance, and one of them without nodes."""
    made = []
    for graph in (graphs.random_undirected(), graphs.random_directed(weighted=True)):
        graph = graphs.with_task(graph, num_classes=CLASSES)
        labels = np.where(graph.labels > 3, 0, graph.labels)  # 4 and 5 become 0
        made.append(replace(graph, labels=labels))
    return {graph.name: written(comm, session_path, graph, "classes") for graph in made}


class Serial(torch.nn.Module):
    """Two layers of sage over all nodes, from the same parameters."""

    def __init__(self, graph, parameters):
        super().__init__()
        self.names = {name.replace(".", "/"): name for name in parameters}
        for name, original in self.names.items():
            self.register_parameter(name, torch.nn.Parameter(parameters[original].clone()))
        self.a = oracle.adjacency(graph.num_nodes, graph.src, graph.dst, graph.weight)
        self.x = torch.from_numpy(graph.features).double()

    def forward(self):
        parameters = {original: getattr(self, name) for name, original in self.names.items()}
        return oracle.model(self.a, self.x, parameters, kind="sage", layers=2)


def weights_of(labels):
    """n / (K n_c), by counting."""
    weights = torch.ones(CLASSES, dtype=torch.float64)
    there = sorted(set(labels.tolist()))
    for label in there:
        weights[label] = len(labels) / (len(there) * labels.tolist().count(label))
    return weights


@pytest.mark.parametrize("smoothing, balance", [(0.2, "none"), (0.0, "balanced"), (0.3, "balanced")])
@pytest.mark.parametrize("name", ["random undirected", "random directed weighted"])
def test_curve_and_average_are_those_of_torch(comm, odd, name, smoothing, balance):
    graph, _, path = odd[name]
    options = {"model": "sage", "layers": 2, "dropout": 0.0, "precision": "fp64", "lr": 0.02, "hidden": 6}
    config = configure(path, label_smoothing=smoothing, class_weights=balance, ema=0.8, **options)
    train_nodes = (graph.split == graphs.TRAIN) & (graph.labels >= 0)
    labels = torch.from_numpy(graph.labels[train_nodes])
    weights = weights_of(labels) if balance == "balanced" else None
    for map_name in ("random", "one empty"):
        trainer = build_trainer(comm, config, map_name, 7)
        serial = Serial(graph, {name: each.detach() for name, each in trainer.model.named_parameters()})
        average = AveragedModel(serial, multi_avg_fn=get_ema_multi_avg_fn(0.8))
        optimizer, expected, found = torch.optim.Adam(serial.parameters(), 0.02), [], []
        for epoch in range(10):
            found.append(trainer.step(epoch))
            loss = F.cross_entropy(serial()[train_nodes], labels, weights, label_smoothing=smoothing)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            average.update_parameters(serial)
            expected.append(float(loss.detach()))
        assert expected[-1] < expected[0]
        np.testing.assert_allclose(found, expected, rtol=1e-10)
        judged, kept = trainer.evaluated_state(), trainer.plugins.find(Averages).tensors()
        for short, original in serial.names.items():
            wanted = getattr(average.module, short)
            torch.testing.assert_close(judged[original], wanted, rtol=1e-9, atol=1e-12)
            torch.testing.assert_close(kept[original], wanted, rtol=1e-9, atol=1e-12)
            own = dict(trainer.model.named_parameters())[original]
            torch.testing.assert_close(own, getattr(serial, short), rtol=1e-9, atol=1e-12)
            assert not torch.equal(own, kept[original])
        right = (average.module().argmax(1).numpy() == graph.labels) & (graph.labels >= 0)
        for split, number in {"train": graphs.TRAIN, "val": graphs.VAL, "test": graphs.TEST}.items():
            of_split = (graph.split == number) & (graph.labels >= 0)
            assert trainer.evaluate()[split] == pytest.approx(right[of_split].mean())


@pytest.fixture(scope="module")
def planted(comm, session_path):
    return make_graphs(comm, session_path, nodes=300)


@pytest.mark.usefixtures("no_pictures")
def test_averages_from_the_checkpoint_to_the_export(comm, planted, shared_path):
    session = SimpleNamespace(comm=comm, threads=1)
    usual = {"model": "sage", "layers": 2, "ema": 0.7, "checkpoint_every": 4, "lr": 0.05, "partition": "metis"}
    run_dir = str(shared_path / "whole")
    assert train(configure(planted["undirected"], run_dir=run_dir, epochs=8, **usual), session) == 0
    comm.barrier()
    whole = checkpoints(shared_path / "whole")[-1]
    averaged = read_averaged(whole)
    progress, last, best, _ = read_checkpoint(whole)
    assert averaged.keys() == last.keys() == best.keys()
    assert not any(torch.equal(last[name], tensor) for name, tensor in averaged.items())
    records = [json.loads(line) for line in (shared_path / "whole" / "metrics.jsonl").read_text().splitlines()]
    config = make_config(options_of_run(shared_path / "whole", {}), CHOICES)
    for weights, epoch in (("last", 8), ("best", progress["best"]["epoch"])):
        assert evaluate(config, session, weights) == 0
        comm.barrier()
        found = json.loads((shared_path / "whole" / "evaluation.json").read_text())
        assert {split: found[split] for split in ("train", "val", "test")} == {
            split: pytest.approx(records[epoch - 1][split]) for split in ("train", "val", "test")
        }
        comm.barrier()
    if comm.rank == 0:
        damaged = shared_path / "damaged.h5"
        damaged.write_bytes(whole.read_bytes())
        with h5py.File(damaged, "r") as file:
            name = next(iter(file["averaged_model"]))
            place = file[f"averaged_model/{name}"].id.get_chunk_info(0).byte_offset
        with open(damaged, "r+b") as file:
            file.seek(place)
            byte = file.read(1)[0]
            file.seek(place)
            file.write(bytes([byte ^ 1]))
        with pytest.raises(CheckpointError, match="cannot be read"):
            read_checkpoint(damaged)
        export(config, str(shared_path / "m.safetensors"), "torch", "last")
        exported = load_file(shared_path / "m.safetensors")
        assert all(torch.equal(tensor, exported[name]) for name, tensor in averaged.items())


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.parametrize("options", [{"label_smoothing": 0.1}, {"class_weights": "balanced"}], ids=str)
def test_other_tasks_refuse_what_only_classes_have(comm, planted, shared_path, options):
    config = configure(planted["directed multi-label"], run_dir=str(shared_path / "run"), epochs=1, **options)
    with pytest.raises(ConfigError, match="of the cross-entropy between classes.*multilabel.*leave it out"):
        train(config, SimpleNamespace(comm=comm, threads=1))
    assert not (shared_path / "run").exists()
