"""Layer by layer: the losses of a serial dense oracle, the same on every number of ranks; L exchanges and not one
more.
"""

import json
from types import SimpleNamespace

import graphs
import numpy as np
import oracle
import pytest
import torch

from hpcgnn.app.train import train
from hpcgnn.comm import SoloCommunicator

from ..small import GRAPHS, edges_of, stored
from ..training import CLASSES, FEATURES, build_trainer, configure, make_graphs

pytestmark = [pytest.mark.ranks(2, 3), pytest.mark.usefixtures("no_pictures")]

EPOCHS = 6


def run(comm, graph, run_dir, **options):
    """The epoch records of a run, on all ranks of comm."""
    given = {"schedule": "lazy", "epochs": EPOCHS, "run_dir": str(run_dir), **options}
    assert train(configure(graph, **given), SimpleNamespace(comm=comm, threads=1)) == 0
    comm.barrier()
    return [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]


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
    """Empty ranks and ranks without training nodes among them; every layer with epochs and a rate of its own."""
    graph, _, file = stored(comm, session_path, name)
    options = {"model": kind, "layer_epochs": "6,4,5", "layer_lr": "0.1,0.05,0.02", "precision": "fp64", "hidden": 4}
    options["input_dropout"] = input_dropout
    records = run(comm, file, shared_path / "run", partition=map_name, **options)
    start = build_trainer(SoloCommunicator(), configure(file, schedule="lazy", **options)).model.state_dict()
    src, dst = edges_of(graph, "keep")
    a = oracle.adjacency(graph.num_nodes, src, dst, graph_weights(graph), {"gcn": "add", "sage": "keep"}[kind])
    labelled = graph.labels >= 0
    edges = np.bincount(dst, minlength=graph.num_nodes)
    if kind == "gcn":
        edges += 1
        edges[np.unique(dst[src == dst])] -= 1  # no loop is added where there is one
    expected = oracle.train_layer_by_layer(
        a,
        torch.from_numpy(graph.features).double(),
        torch.from_numpy(graph.labels),
        torch.from_numpy(labelled & (graph.split == graphs.TRAIN)),
        torch.from_numpy(labelled & (graph.split == graphs.VAL)),
        start,
        **{"kind": kind, "epochs": [6, 4, 5], "lr": [0.1, 0.05, 0.02], "dropout": 0.5, "seed": 5},
        edges=edges if input_dropout == "scaled" else None,
    )
    np.testing.assert_allclose(losses(records), expected, rtol=0, atol=1e-9)
    assert [record["layer"] for record in records] == [1] * 6 + [2] * 4 + [3] * 5
    assert [record["lr"] for record in records] == [0.1] * 6 + [0.05] * 4 + [0.02] * 5


def graph_weights(graph):
    """The weights in the order of `edges_of`."""
    return None if graph.weight is None else graph.weight[np.lexsort((graph.src, graph.dst))]


# name: (options, whether features are stored sparsely)
MODELS = {
    "gat by refetching": ({"model": "gat", "heads": 2, "attention_dropout": 0.3, "frozen_halo": "refetch"}, False),
    "gat on sparse features": ({"model": "gat", "heads": 2, "edge_term": "weight"}, True),
    "sage, dropout of raw features": ({"model": "sage", "input_dropout": "raw"}, False),
    "gatv2, warm start, fine-tuned": ({"model": "gatv2", "heads": 2, "warm_start": True, "finetune": 3}, False),
}


@pytest.mark.parametrize("case", MODELS)
def test_the_curve_of_one_rank(comm, session_path, shared_path, case):
    options, sparse = MODELS[case]
    name = "random directed weighted" if "edge_term" in options else "power law"
    where, file = graphs.layout(GRAPHS[name], comm.size), session_path / f"lazy-{name.split()[0]}-{sparse}.h5"
    if comm.rank == 0 and not file.exists():
        graphs.write_file(file, GRAPHS[name], where, comm.size, sparse)
    comm.barrier()
    options = {"precision": "fp64", "hidden": 4, "epochs": 4, "lr": 0.05, **options}
    records = run(comm, file, shared_path / "all", partition="one empty", **options)
    if comm.rank == 0:
        alone = run(SoloCommunicator(), file, shared_path / "one", **options)
        np.testing.assert_allclose(losses(records), losses(alone), rtol=0, atol=1e-9)
        for split in ("train", "val", "test"):
            assert [r[split] for r in records] == pytest.approx([r[split] for r in alone], abs=1e-12)


@pytest.mark.processes
@pytest.mark.parametrize(
    "kind, hidden, precision, size",
    [("gcn", 16, "fp32", 4), ("sage", 40, "fp64", 8), ("gat", 4, "fp32", 4)],
)
def test_what_is_sent(comm, session_path, shared_path, kind, hidden, precision, size):
    """The input of every layer, once, and no gradient of a row: 4 · B · (d_in + Σ d_hidden) bytes in fp32."""
    graph = make_graphs(comm, session_path, nodes=300)["undirected"]
    options = {"model": kind, "hidden": hidden, "heads": 2, "precision": precision, "private_features": True}
    before = comm.ledger.total().get("input", {"bytes_sent": 0})["bytes_sent"]
    records = run(comm, graph, shared_path / "run", partition="metis", **options)
    summary = json.loads((shared_path / "run" / "summary.json").read_text())
    halo, width = summary["partition"]["halo_rows_total"], 2 * hidden if kind == "gat" else hidden
    sent = summary["bytes_total"]
    assert sent.get("input", 0) == size * halo * FEATURES
    assert sent.get("halo_forward", 0) == size * halo * 2 * width
    assert sent.get("halo_backward", 0) == sent.get("resume", 0) == 0
    assert (sent["input"] if halo else 0) + sent.get("halo_forward", 0) == size * halo * (FEATURES + 2 * width)
    first = [record["epoch"] for record in records if record["bytes"].keys() & {"input", "halo_forward"}]
    assert first == ([1, 1 + EPOCHS, 1 + 2 * EPOCHS] if halo else [])
    told = [line for line in (shared_path / "run" / "log.txt").read_text().splitlines() if "keeps a copy" in line]
    assert len(told) == (3 if kind == "gat" and comm.size > 1 else 0), "of rows; the others keep their sums"
    for layer, (line, columns) in enumerate(zip(told, (FEATURES, width, width))):
        own, rows = int(summary["partition"]["halo_rows"]["max"]), f"{halo:,} rows of {columns} over all ranks"
        assert f"layer {layer + 1} keeps a copy of its halo: {rows}, {size * halo * columns / 2**20:.1f} MiB" in line
        assert f"at most {size * own * columns / 2**20:.1f} MiB on one" in line
    counts = 3 * 2 * 8 * comm.size
    assert sent.get("evaluation", 0) <= len(records) * counts, "three pairs of numbers, no rows"
    parameters = sum(record["bytes"].get("allreduce", {"sum": 0})["sum"] for record in records[-EPOCHS:])
    assert comm.size == 1 or parameters == size * EPOCHS * comm.size * last_layer(kind, hidden)
    listed = summary["left_each_rank"]
    assert [entry["rank"] for entry in listed] == list(range(comm.size))
    mine = listed[comm.rank].get("input", {"bytes": 0})["bytes"] - before
    assert sum(comm.allgather_object(mine)) == size * halo * FEATURES


def last_layer(kind, hidden):
    """The number of parameters of the last layer."""
    return {
        "gcn": hidden * CLASSES + CLASSES,
        "sage": 2 * hidden * CLASSES + CLASSES,
        "gat": 2 * hidden * CLASSES + 3 * CLASSES,
    }[kind]


def test_sparse_features_are_sent_as_they_are_stored(comm, session_path, shared_path):
    graph, where = GRAPHS["power law"], graphs.layout(GRAPHS["power law"], comm.size)
    for name, features in (("numbers", graph.features), ("ones", (graph.features != 0).astype(np.float32))):
        changed, file = graphs.replace(graph, features=features), shared_path / f"{name}.h5"
        if comm.rank == 0:
            graphs.write_file(file, changed, where, comm.size, sparse=True)
        comm.barrier()
        run(comm, file, shared_path / name, model="sage", partition="dealt", hidden=4, epochs=2)
        summary = json.loads((shared_path / name / "summary.json").read_text())
        owner, (src, dst) = where.owner("dealt"), edges_of(graph, "keep")
        pairs = {(source, owner[target]) for source, target in zip(src, dst) if owner[source] != owner[target]}
        entries = sum(int((features[source] != 0).sum()) for source, _ in pairs)
        assert summary["bytes_total"].get("input", 0) == 4 * len(pairs) + (8 if name == "numbers" else 4) * entries
