"""Labels as inputs: the drawn nodes, the nodes of the loss, and the results of evaluation.

The reference on every number of ranks is a dense serial run.
"""

import graphs
import h5py
import numpy as np
import oracle
import pytest
import torch
import torch.nn.functional as F
from mpi.runs import evaluated, predicted, train_into
from mpi.serial import serial_curve
from mpi.small import written
from mpi.training import build_trainer, configure, make_graphs

from hpcgnn.errors import ConfigError
from partition_tools.cli.generate_graph import generate_graph
from partition_tools.generators.spec import Spec

pytestmark = pytest.mark.ranks(2)

SEED, CLASSES, REUSED_LABEL = 5, 3, 13  # the purpose of the draws is part of what a seed means
SHARE = 0.4


def oracle_run(graph, parameters, epochs, lr):
    """(losses, the outputs when all labels are given at the end) of two layers of sage."""
    a = oracle.adjacency(graph.num_nodes, graph.src, graph.dst, graph.weight)
    x, labels = torch.from_numpy(graph.features).double(), torch.from_numpy(graph.labels)
    several = labels.dim() == 2
    known = torch.ones(len(labels), dtype=torch.bool) if several else labels >= 0
    train_nodes = torch.from_numpy(graph.split == graphs.TRAIN) & known
    hot = labels.double() if several else F.one_hot(labels.clamp_min(0), CLASSES).double()

    def outputs(given, parameters):
        return oracle.model(a, torch.cat([x, hot * given[:, None]], 1), parameters, kind="sage", layers=2)

    def value_of(epoch, parameters):
        words = oracle.random_words(oracle.stream_key(SEED, epoch, 0, REUSED_LABEL), np.arange(graph.num_nodes), 1)
        given = train_nodes & torch.from_numpy(words[:, 0] < round(SHARE * 2**32))
        assert given.any() and not given[~train_nodes].any()
        return oracle.loss(outputs(given, parameters), labels, train_nodes & ~given)

    losses, parameters = serial_curve(value_of, parameters, epochs, lr)
    return losses, outputs(train_nodes, parameters)


@pytest.mark.parametrize("several", [False, True])
def test_the_curve_of_a_serial_oracle(comm, session_path, several):
    options = {"model": "sage", "layers": 2, "dropout": 0.0, "precision": "fp64", "lr": 0.02, "hidden": 6}
    kind = graphs.random_directed(weighted=True) if several else graphs.random_undirected()
    graph, _, path = written(comm, session_path, graphs.with_task(kind, multi_label=several), "reuse")
    trainer = build_trainer(comm, configure(path, label_reuse=SHARE, **options), "one empty", 7)
    initial = {name: tensor.detach().clone() for name, tensor in trainer.model.named_parameters()}
    expected, wanted = oracle_run(graph, initial, 10, 0.02)
    np.testing.assert_allclose([trainer.step(epoch) for epoch in range(10)], expected, rtol=1e-10)
    assert expected[-1] < expected[0]
    trainer.evaluate()  # which gives all labels
    trainer.model.eval()
    with torch.no_grad():
        own = trainer.model(trainer.graph)
    torch.testing.assert_close(own, wanted[trainer.graph.ids], rtol=1e-9, atol=1e-10)


def test_a_run_that_is_used(comm, session_path, shared_path):
    """As another graph the same one gives the same labels, and without a split it gives none."""
    path = make_graphs(comm, session_path, nodes=300)["undirected"]
    run_dir, bare = shared_path / "run", shared_path / "bare.h5"
    *_, last = train_into(comm, path, run_dir, model="sage", layers=2, label_reuse=0.5, epochs=4)
    if comm.rank == 0:
        bare.write_bytes(path.read_bytes())
        with h5py.File(bare, "r+") as file:
            file["nodes/split"][:] = 3
    comm.barrier()
    found = evaluated(comm, run_dir, "last")
    for split in ("train", "val", "test"):
        assert found[split] == pytest.approx(last[split])
    logits = []
    for number, graph in enumerate((None, path, bare)):
        predicted(comm, run_dir, shared_path / f"logits-{number}.h5", graph=graph, logits=True)
        with h5py.File(shared_path / f"logits-{number}.h5") as file:
            logits.append(file["logit"][:])
    np.testing.assert_array_equal(logits[0], logits[1])
    assert not np.allclose(logits[0], logits[2], rtol=1e-3)


def test_what_does_not_go_together_is_refused(tmp_path):
    for options, message in (
        ({"schedule": "lazy"}, "--label-reuse 0.5 changes the input in every step"),
        ({"keep_input": "always"}, "--keep-input always .* got --label-reuse 0.5"),
        ({"inductive": True}, "--label-reuse 0.5 gives each node of the whole graph something"),
        ({"features": "file+labels"}, "labels become inputs by --label-reuse"),
    ):
        with pytest.raises(ConfigError, match=message):
            configure("g.h5", label_reuse=0.5, **options)
    generate_graph("planted", tmp_path / "g.h5", Spec(40, degree=3, features=2, classes=2, targets=1, seed=1))
    with pytest.raises(ConfigError, match="--label-reuse 0.5 gives classes as inputs"):
        build_trainer(None, configure(tmp_path / "g.h5", label_reuse=0.5))
