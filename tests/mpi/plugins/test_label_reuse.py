"""Labels as inputs: who is drawn, what the loss is taken on, and what evaluation gives, on every number of ranks,
beside a dense serial run.
"""

import json
from types import SimpleNamespace

import graphs
import h5py
import numpy as np
import oracle
import pytest
import torch
import torch.nn.functional as F

from hpcgnn.app.evaluate import evaluate
from hpcgnn.app.predict import Request, predict
from hpcgnn.app.resuming import options_of_run
from hpcgnn.app.train import train
from hpcgnn.config import make_config

from ..small import written
from ..training import CHOICES, build_trainer, configure, make_graphs

pytestmark = pytest.mark.ranks(2)

SEED, CLASSES, REUSED_LABEL = 5, 3, 13  # the purpose of the draws is part of what a seed means
SHARE = 0.4


@pytest.fixture(scope="module", params=[False, True], ids=["classes", "multilabel"])
def odd(request, comm, session_path):
    """[(graph, layout, file)] of odd graphs, undirected and directed."""
    kinds = graphs.random_undirected(), graphs.random_directed(weighted=True)
    made = [graphs.with_task(graph, multi_label=request.param) for graph in kinds]
    return [written(comm, session_path, graph, f"reuse-{request.param}") for graph in made]


def oracle_run(graph, parameters, epochs, lr):
    """(losses, the outputs when all labels are given at the end) of two layers of sage."""
    a = oracle.adjacency(graph.num_nodes, graph.src, graph.dst, graph.weight)
    x, labels = torch.from_numpy(graph.features).double(), torch.from_numpy(graph.labels)
    several = labels.dim() == 2
    known = torch.ones(len(labels), dtype=torch.bool) if several else labels >= 0
    train_nodes = torch.from_numpy(graph.split == graphs.TRAIN) & known
    hot = labels.double() if several else F.one_hot(labels.clamp_min(0), CLASSES).double()
    parameters = {name: tensor.clone().requires_grad_() for name, tensor in parameters.items()}
    optimizer, losses = torch.optim.Adam(parameters.values(), lr), []

    def outputs(given):
        return oracle.model(a, torch.cat([x, hot * given[:, None]], 1), parameters, kind="sage", layers=2)

    for epoch in range(epochs):
        words = oracle.random_words(oracle.stream_key(SEED, epoch, 0, REUSED_LABEL), np.arange(graph.num_nodes), 1)
        given = train_nodes & torch.from_numpy(words[:, 0] < round(SHARE * 2**32))
        assert given.any() and not given[~train_nodes].any()
        loss = oracle.loss(outputs(given), labels, train_nodes & ~given)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses, outputs(train_nodes).detach()


def test_the_curve_of_a_serial_oracle(comm, odd):
    options = {"model": "sage", "layers": 2, "dropout": 0.0, "precision": "fp64", "lr": 0.02, "hidden": 6}
    for graph, _, path in odd:
        for map_name in ("random", "one empty"):
            trainer = build_trainer(comm, configure(path, label_reuse=SHARE, **options), map_name, 7)
            initial = {name: tensor.detach().clone() for name, tensor in trainer.model.named_parameters()}
            assert not any(tensor.shape[0] == graph.features.shape[1] for tensor in initial.values())
            expected, wanted = oracle_run(graph, initial, 10, 0.02)
            found = [trainer.step(epoch) for epoch in range(10)]
            assert expected[-1] < expected[0]
            np.testing.assert_allclose(found, expected, rtol=1e-10)
            trainer.evaluate()  # which gives all labels
            trainer.model.eval()
            with torch.no_grad():
                own = trainer.model(trainer.graph)
            torch.testing.assert_close(own, wanted[trainer.graph.ids], rtol=1e-9, atol=1e-10)


@pytest.fixture(scope="module")
def planted(comm, session_path):
    return make_graphs(comm, session_path, nodes=300)


@pytest.mark.usefixtures("no_pictures")
def test_a_run_that_is_used(comm, planted, shared_path):
    session, run_dir = SimpleNamespace(comm=comm, threads=1), shared_path / "run"
    usual = {"model": "sage", "layers": 2, "label_reuse": 0.5, "partition": "metis", "epochs": 4}
    assert train(configure(planted["undirected"], run_dir=str(run_dir), **usual), session) == 0
    comm.barrier()
    last = json.loads((run_dir / "metrics.jsonl").read_text().splitlines()[-1])
    config = make_config(options_of_run(run_dir, {}), CHOICES)
    assert evaluate(config, session, "last") == 0
    comm.barrier()
    found = json.loads((run_dir / "evaluation.json").read_text())
    for split in ("train", "val", "test"):
        assert found[split] == pytest.approx(last[split])
    # As another graph the same one gives the same labels, and without a split it gives none.
    bare = shared_path / "bare.h5"
    if comm.rank == 0:
        bare.write_bytes(planted["undirected"].read_bytes())
        with h5py.File(bare, "r+") as file:
            file["nodes/split"][:] = 3
    comm.barrier()
    logits = {}
    for name, given in {
        "own": {},
        "again": {"graph": str(planted["undirected"])},
        "bare": {"graph": str(bare)},
    }.items():
        request = Request(str(shared_path / f"logits-{name}.h5"), logits=True, other_graph=bool(given), force=True)
        assert predict(make_config(options_of_run(run_dir, given), CHOICES), session, "last", request) == 0
        comm.barrier()
        with h5py.File(shared_path / f"logits-{name}.h5") as file:
            logits[name] = file["logit"][:]
        comm.barrier()
    np.testing.assert_array_equal(logits["own"], logits["again"])
    assert not np.allclose(logits["own"], logits["bare"], rtol=1e-3)
