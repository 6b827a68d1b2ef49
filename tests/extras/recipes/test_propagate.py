"""`hpcgnn propagate` and --model sign on its output, against dense matrices on any number of ranks."""

import uuid

import graphs
import h5py
import numpy as np
import oracle
import pytest
import torch
from mpi.runs import predicted, session_of, train_into
from mpi.small import written
from mpi.training import CHOICES, build_trainer, configure, curve, outputs_and_gradients

from hpcgnn.__main__ import build_parser
from hpcgnn.errors import ConfigError, GraphError
from hpcgnn.extras.recipes.hops import HopRequest
from hpcgnn.extras.recipes.propagate import propagate_features
from hpcgnn.graphfile.storage import GraphFile
from partition_tools.cli.generate_graph import generate_graph
from partition_tools.cli.partition_graph import partition_graph
from partition_tools.cli.verify_graph import verify_graph
from partition_tools.generators.spec import Spec

pytestmark = pytest.mark.ranks(1, 2, 3)

NODES, WIDTH, CLASSES, HOPS, FOLDS, TELEPORT, LABEL_FOLD = 120, 4, 3, 2, 5, 0.3, 18
KINDS = {
    "undirected": {},
    "directed": {"directed": True, "weighted": True},
    "labels": {"multi_label": True},
    "numbers": {"targets": 1, "edge_types": 0},
}


@pytest.fixture(scope="module")
def typed(comm, session_path):
    """{kind: file} of graphs with three types of edges; 'labels' has any number of labels for a node."""
    paths = {kind: session_path / f"hops-{kind}.h5" for kind in KINDS}
    for kind, path in paths.items() if comm.rank == 0 else ():
        if not path.exists():
            options = {"edge_types": 3, **KINDS[kind]}
            generate_graph("planted", path, Spec(NODES, degree=5, features=WIDTH, classes=CLASSES, seed=1, **options))
            partition_graph(path, [1, 2, 3, 4], method="random-clusters", num_clusters=16)
    comm.barrier()
    return paths


def propagated(comm, path, folder, map_name="random-clusters", **options):
    """The file that the command writes. Collective."""
    request = HopRequest(str(folder / "hops.h5"), teleport=TELEPORT, force=True, **options)
    config = configure(path, partition=map_name, precision="fp64")
    assert propagate_features(config, session_of(comm), request) == 0
    return folder / "hops.h5"


def contents(path):
    """({name: rows by original id}, edges (src, dst, weight))."""
    with h5py.File(path) as file:
        ids = file["nodes/original_id"][:]
        back = np.argsort(ids)
        nodes = {name: file[f"nodes/{name}"][:][back] for name in ("features", "labels", "split")}
        dst = ids[np.repeat(np.arange(NODES), np.diff(file["topology/indptr"][:]))]
        src = ids[file["topology/indices"][:].astype(np.int64)]
        weight = file["edges/weight"][:] if "edges/weight" in file else np.ones(len(src))
        return nodes, (src, dst, weight)


def columns_of(path, operators, label_hops):
    """The same columns by dense matrices, each training node's labels apart from its own fold's."""
    nodes, (src, dst, weight) = contents(path)
    x, labels, train = nodes["features"].astype(float), nodes["labels"], nodes["split"] == 1
    hot = np.eye(CLASSES)[labels] if labels.ndim == 1 else labels.astype(float)
    words = oracle.random_words(oracle.stream_key(0, 0, 0, LABEL_FOLD), np.arange(NODES), 1)[:, 0]
    fold = words % FOLDS
    found, of_labels = [x], []
    a = oracle.adjacency(NODES, src, dst, weight, "add")
    for name in operators:
        s, power = oracle.operator(a, {"ppr": "sym"}.get(name, name)), np.eye(NODES)
        for hop in range(max(HOPS, label_hops)):
            power = s @ power if name != "ppr" else (1 - TELEPORT) * (s @ power) + TELEPORT * np.eye(NODES)
            if hop < HOPS:
                found.append(power @ x)
            if hop < label_hops:
                sees = power * train  # of node v, all training nodes but those of its fold
                sees = np.where(train[:, None] & (fold[:, None] == fold), 0, sees)
                sees[train] *= FOLDS / (FOLDS - 1)
                of_labels.append(sees @ hot)
    return np.concatenate(found + of_labels, 1)


@pytest.mark.parametrize(
    "kind, operators, label_hops",
    [
        ("directed", ("mean", "ppr"), 3),
        ("undirected", ("sym",), 2),
        ("labels", ("sym", "ppr"), 1),
        ("directed", ("sym", "mean", "ppr"), 0),
    ],
)
def test_columns_beside_dense_matrices(comm, typed, shared_path, kind, operators, label_hops):
    file = propagated(comm, typed[kind], shared_path, operators=operators, hops=HOPS, label_hops=label_hops)
    expected = columns_of(typed[kind], operators, label_hops)
    np.testing.assert_allclose(contents(file)[0]["features"], expected, rtol=1e-5, atol=1e-6)
    with h5py.File(file) as made, h5py.File(typed[kind]) as source:
        assert made.attrs["uuid"] != source.attrs["uuid"]
        names = []
        source.visit(names.append)
        for name in (each for each in names if isinstance(source[each], h5py.Dataset) and each != "nodes/features"):
            assert (made[name][()] == source[name][()]).all(), name
    if comm.rank == 0:
        assert all(check.ok for check in verify_graph(file))
        partition_graph(file, [comm.size], num_clusters=12, output=shared_path / "again.h5")
        with GraphFile(shared_path / "again.h5") as again, GraphFile(file) as opened:
            assert again.meta.part_widths == opened.meta.part_widths
            assert opened.meta.num_label_parts == len(operators) * label_hops
    comm.barrier()


@pytest.mark.parametrize("layers, label_hops", [(1, 0), (2, 2), (3, 0)])
def test_outputs_gradients_and_nothing_sent(comm, typed, shared_path, layers, label_hops):
    file = propagated(
        comm, typed["undirected"], shared_path, hops=HOPS, label_hops=label_hops, operators=("sym", "mean")
    )
    options = {"model": "sign", "layers": layers, "dropout": 0.0, "hidden": 6, "precision": "fp64"}
    trainer = build_trainer(comm, configure(file, **options), "random-clusters")
    trainer.comm.ledger.take()
    own = dict(trainer.model.named_parameters())
    mine, _, parameters = outputs_and_gradients(trainer, trainer.graph)
    nodes, _ = contents(file)
    h = torch.from_numpy(nodes["features"]).double()

    def linear(name, y):
        return y @ parameters[f"{name}.weight"] + parameters[f"{name}.bias"]

    if layers > 1:
        parts = h.split([WIDTH] * (1 + 2 * HOPS) + [CLASSES] * 2 * label_hops, 1)
        h = torch.cat([linear(f"convs.0.linears.{k}", part) for k, part in enumerate(parts)], 1).relu()
    for layer in range(1, layers - 1):
        h = linear(f"convs.{layer}.linear", h).relu()
    expected = linear(f"convs.{layers - 1}.linear", h)
    oracle.loss(expected, torch.from_numpy(nodes["labels"]), torch.from_numpy(nodes["split"] == 1)).backward()
    np.testing.assert_allclose(mine.detach(), expected.detach()[trainer.graph.ids], rtol=1e-6, atol=1e-8)
    for name, tensor in own.items():
        torch.testing.assert_close(tensor.grad, parameters[name].grad, rtol=1e-6, atol=1e-8)
    trainer.step(0)
    trainer.evaluate()
    sent = {kind for kind, entry in trainer.comm.ledger.take().items() if entry.bytes_sent}
    assert sent <= {"allreduce", "metrics", "evaluation"} and trainer.model.prunable_layers == 0
    comm.barrier()


@pytest.mark.ranks(2)
def test_a_run_on_any_number_of_ranks(comm, typed, shared_path):
    """With dropout, batch norm and resuming, and on to predictions."""
    file = propagated(comm, typed["undirected"], shared_path, operators=("sym", "ppr"))
    options = {"model": "sign", "dropout": 0.3, "norm": "batch"}
    expected = comm.broadcast_object(curve(comm, configure(file, **options), None, None, 4) if comm.rank == 0 else None)
    found = curve(comm, configure(file, **options), "random-clusters", None, 4)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    assert expected[-1] < expected[0]
    run_dir, options = shared_path / "run", options | {"partition": "random-clusters"}
    train_into(comm, file, run_dir, epochs=3, **options)
    train_into(comm, file, run_dir, epochs=5, resume=True, **options)
    predicted(comm, run_dir, shared_path / "p.h5", layer=1)
    with h5py.File(shared_path / "p.h5") as written_file:
        assert written_file["embedding"].shape == (NODES, 5 * 16)
    comm.barrier()
    if comm.rank == 0:
        with h5py.File(file, "r+") as changed:
            changed.attrs.update(num_feature_parts=4, uuid=np.bytes_(str(uuid.uuid4())))
    comm.barrier()
    with pytest.raises(GraphError, match="expected parts of the features 5, got 4"):
        predicted(comm, run_dir, shared_path / "q.h5", graph=file)


@pytest.mark.ranks(2)
def test_what_does_not_go_together_is_refused(comm, typed, shared_path):
    path, session = typed["undirected"], session_of(comm)
    for force in (False, True):
        with pytest.raises(ConfigError, match="is the input itself"):
            propagate_features(configure(path), session, HopRequest(str(path), force=force))
    for kind, options, message in (("numbers", {"label_hops": 1}, "--label-hops: expected classes or 0/1 labels"),):
        with pytest.raises(GraphError, match=message):
            propagated(comm, typed[kind], shared_path, **options)
    negative = graphs.with_task(graphs.random_directed(weighted=True))
    _, _, file = written(comm, shared_path, graphs.replace(negative, weight=-abs(negative.weight)), "negative")
    with pytest.raises(GraphError, match="sum to less than 0, and sym and ppr divide"):
        propagated(comm, file, shared_path, "random")
    assert [each.name for each in shared_path.iterdir()] == [file.name], "and no temporary file"


@pytest.mark.ranks(1)
@pytest.mark.parametrize(
    "wrong", [*("--operators sym,gcn", "--operators sym,sym", "--hops 0", "--teleport 2", "--label-hops 0")]
)
def test_words_that_are_refused(wrong):
    with pytest.raises(ConfigError, match=f"{wrong.split()[0]}: expected"):
        build_parser(CHOICES).parse_args(["propagate", "--graph", "g.h5", "-o", "hops.h5", *wrong.split()])


@pytest.mark.parametrize(
    "options",
    [{"jumping": "cat"}, {"schedule": "bns"}, {"features": "degree"}, {"label_reuse": 0.5}, {"inductive": True}],
    ids=str,
)
def test_options_that_a_model_of_hops_refuses(typed, options):
    (name, _), *_ = options.items()
    with pytest.raises(ConfigError, match=f"--{name.replace('_', '-')}"):
        build_trainer(None, configure(typed["undirected"], model="sign", **options))
