"""Layer by layer: the losses of a serial dense oracle, the same on every number of ranks; L exchanges and not one
more.
"""

import graphs
import numpy as np
import oracle
import pytest
import torch

from hpcgnn.comm.communicator import SoloCommunicator

from ..runs import summary, train_into
from ..small import GRAPHS, dense, edges_of, stored, written
from ..training import FEATURES, build_trainer, configure

pytestmark = pytest.mark.ranks(2, 3)

EPOCHS = 6


def run(comm, graph, run_dir, **options):
    return train_into(
        comm, graph, run_dir, **{"schedule": "lazy", "intra_node": "messages", "epochs": EPOCHS, **options}
    )


def losses(records):
    return np.array([record["loss"] for record in records])


@pytest.mark.smoke
@pytest.mark.parametrize("input_dropout", ["scaled", "aggregate"])
@pytest.mark.parametrize(
    "kind, name, map_name",
    [
        ("gcn", "random undirected", "one empty"),
        ("gcn", "random directed weighted", "dealt"),
        ("sage", "random undirected", "all on last"),
        ("sage", "random directed weighted", "one empty"),
    ],
)
def test_the_losses_of_the_oracle(comm, session_path, shared_path, kind, name, map_name, input_dropout):
    """Empty ranks and ranks without training nodes among them; every layer with epochs of its own."""
    graph, _, file = stored(comm, session_path, name)
    options = {"model": kind, "layer_epochs": "6,4,5", "lr": 0.1, "precision": "fp64", "hidden": 4}
    options["input_dropout"] = input_dropout
    records = run(comm, file, shared_path / "run", partition=map_name, **options)
    start = build_trainer(SoloCommunicator(), configure(file, schedule="lazy", **options)).model.state_dict()
    a, x, labels, train = dense(graph, kind)
    edges = np.bincount(edges_of(graph, "add" if kind == "gcn" else "keep")[1], minlength=graph.num_nodes)
    val = (labels >= 0) & torch.from_numpy(graph.split == graphs.VAL)
    expected = oracle.train_layer_by_layer(
        *(a, x, labels, train, val, start),
        **{"kind": kind, "epochs": [6, 4, 5], "lr": 0.1, "dropout": 0.5, "seed": 5},
        edges=edges if input_dropout == "scaled" else None,
    )
    np.testing.assert_allclose(losses(records), expected, rtol=0, atol=1e-9)
    assert [record["layer"] for record in records] == [1] * 6 + [2] * 4 + [3] * 5


# name: (options, whether features are stored sparsely)
MODELS = {
    "gat": ({"model": "gat", "heads": 2, "attention_dropout": 0.3}, False),
    "gat on sparse features": ({"model": "gat", "heads": 2}, True),
    "sage, dropout of raw features": ({"model": "sage", "input_dropout": "raw"}, False),
    "gatv2": ({"model": "gatv2", "heads": 2}, False),
}


@pytest.mark.parametrize("case", MODELS)
def test_the_curve_of_one_rank(comm, session_path, shared_path, case):
    options, sparse = MODELS[case]
    file = written(comm, session_path, GRAPHS["power law"], "lazy", sparse)[2]
    options = {"precision": "fp64", "hidden": 4, "epochs": 4, "lr": 0.05, **options}
    records = run(comm, file, shared_path / "all", partition="one empty", **options)
    if comm.rank == 0:
        alone = run(SoloCommunicator(), file, shared_path / "one", partition="", **options)
        np.testing.assert_allclose(losses(records), losses(alone), rtol=0, atol=1e-9)
        for split in ("train", "val", "test"):
            assert [r[split] for r in records] == pytest.approx([r[split] for r in alone], abs=1e-12)


@pytest.mark.processes
@pytest.mark.parametrize(
    "kind, hidden, precision, size", [("gcn", 16, "fp32", 4), ("sage", 40, "fp64", 8), ("gat", 4, "fp32", 4)]
)
def test_what_is_sent(comm, graph, shared_path, kind, hidden, precision, size):
    """The input of every layer, once, and no gradient of a row: 4 · B · (d_in + Σ d_hidden) bytes in fp32."""
    options = {"model": kind, "hidden": hidden, "heads": 2, "precision": precision}
    records = run(comm, graph, shared_path / "run", **options)
    of_all = summary(shared_path / "run")
    halo, width = of_all["partition"]["halo_rows_total"], 2 * hidden if kind == "gat" else hidden
    sent = of_all["bytes_total"]
    assert sent.get("input", 0) == size * halo * FEATURES
    assert sent.get("halo_forward", 0) == size * halo * 2 * width
    assert sent.get("halo_backward", 0) == sent.get("resume", 0) == 0
    first = [record["epoch"] for record in records if record["bytes"].keys() & {"input", "halo_forward"}]
    assert first == [1, 1 + EPOCHS, 1 + 2 * EPOCHS]
    assert sent["evaluation"] <= len(records) * 4 * 2 * 8 * comm.size, "four pairs of numbers, no rows"


def test_sparse_features_are_sent_as_they_are_stored(comm, session_path, shared_path):
    graph = GRAPHS["power law"]
    for name, features in (("numbers", graph.features), ("ones", (graph.features != 0).astype(np.float32))):
        changed = graphs.replace(graph, features=features)
        _, where, file = written(comm, session_path, changed, f"lazy-{name}", sparse=True)
        run(comm, file, shared_path / name, model="sage", partition="dealt", hidden=4, epochs=2)
        owner, (src, dst) = where.owner("dealt"), edges_of(graph, "keep")
        pairs = {(source, owner[target]) for source, target in zip(src, dst) if owner[source] != owner[target]}
        entries = sum(int((features[source] != 0).sum()) for source, _ in pairs)
        sent = summary(shared_path / name)["bytes_total"].get("input", 0)
        assert sent == 4 * len(pairs) + (8 if name == "numbers" else 4) * entries
