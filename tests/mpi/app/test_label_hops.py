"""`hpcgnn propagate --label-hops --relations`, and --model sign of what it writes, beside dense matrices on any number
of ranks.
"""

from types import SimpleNamespace

import h5py
import numpy as np
import oracle
import pytest
import torch

from hpcgnn.__main__ import build_parser
from hpcgnn.app.hops import Request
from hpcgnn.app.propagate import propagate_features
from hpcgnn.errors import ConfigError, GraphError
from hpcgnn.graphfile.storage import GraphFile
from partition_tools.cli.generate_graph import generate_graph
from partition_tools.cli.partition_graph import partition_graph
from partition_tools.cli.verify_graph import verify_graph
from partition_tools.generators.spec import Spec

from ..training import build_trainer, configure, outputs_and_gradients

pytestmark = pytest.mark.ranks(1, 2, 3, 4)

NODES, CLASSES, HOPS, FOLDS, TELEPORT, LABEL_FOLD = 120, 3, 2, 3, 0.3, 18
SETS = {"0,1+2": [(0,), (1, 2)], "each": [(0,), (1,), (2,)], "": [(0, 1, 2)]}


@pytest.fixture(scope="module")
def typed(comm, session_path):
    """{kind: file} of graphs with three types of edges; 'labels' has any number of labels for a node."""
    kinds = {"undirected": {}, "directed": {"directed": True, "weighted": True}, "labels": {"multi_label": True}}
    paths = {kind: session_path / f"label-hops-{kind}.h5" for kind in kinds}
    if comm.rank == 0:
        for kind, options in kinds.items():
            spec = Spec(nodes=NODES, degree=5, features=4, classes=CLASSES, seed=1, edge_types=3, **options)
            generate_graph("planted", paths[kind], spec)
            partition_graph(paths[kind], [1, 2, 3, 4], method="random-clusters", num_clusters=16)
    comm.barrier()
    return paths


def propagated(comm, path, folder, **options):
    """The file that the command writes. Collective."""
    request = Request(str(folder / "hops.h5"), teleport=TELEPORT, force=True, **options)
    config = configure(path, partition="random-clusters", precision="fp64")
    assert propagate_features(config, SimpleNamespace(comm=comm, threads=1), request) == 0
    return folder / "hops.h5"


def contents(path):
    """({name: rows by original id}, edges (src, dst, weight, type))."""
    with h5py.File(path) as file:
        ids = file["nodes/original_id"][:]
        back = np.argsort(ids)
        nodes = {name: file[f"nodes/{name}"][:][back] for name in ("features", "labels", "split")}
        dst = ids[np.repeat(np.arange(NODES), np.diff(file["topology/indptr"][:]))]
        src = ids[file["topology/indices"][:].astype(np.int64)]
        weight = file["edges/weight"][:] if "edges/weight" in file else np.ones(len(src))
        return nodes, (src, dst, weight, file["edges/type"][:])


def columns_of(path, sets, operators, last, label_hops):
    """The same columns by dense matrices, each training node's labels apart from those of its fold."""
    nodes, (src, dst, weight, kinds) = contents(path)
    x, labels, train = nodes["features"].astype(float), nodes["labels"], nodes["split"] == 1
    hot = np.eye(CLASSES)[labels] if labels.ndim == 1 else labels.astype(float)
    words = oracle.random_words(oracle.stream_key(0, 0, 0, LABEL_FOLD), np.arange(NODES), 1)[:, 0]
    fold = words % FOLDS
    found, of_labels = [] if last else [x], []
    for types in sets:
        mine = np.isin(kinds, types)
        a = oracle.adjacency(NODES, src[mine], dst[mine], weight[mine], "add")
        for name in operators:
            s, power = oracle.operator(a, {"ppr": "sym"}.get(name, name)), np.eye(NODES)
            for hop in range(max(HOPS, label_hops)):
                power = s @ power if name != "ppr" else (1 - TELEPORT) * (s @ power) + TELEPORT * np.eye(NODES)
                if hop < HOPS and (not last or hop == HOPS - 1):
                    found.append(power @ x)
                if hop < label_hops and (not last or hop == label_hops - 1):
                    sees = power * train  # of node v, all training nodes but those of its fold
                    sees = np.where(train[:, None] & (fold[:, None] == fold), 0, sees)
                    sees[train] *= FOLDS / (FOLDS - 1)
                    of_labels.append(sees @ hot)
    return np.concatenate(found + of_labels, 1)


@pytest.mark.parametrize(
    "kind, relations, operators, last, label_hops",
    [
        ("directed", "0,1+2", ("mean", "ppr"), False, 3),
        ("undirected", "each", ("sym",), True, 2),
        ("labels", "", ("sym", "ppr"), False, 1),
        ("undirected", "0,1+2", ("mean",), False, 0),
    ],
)
def test_columns_beside_dense_matrices(comm, typed, shared_path, kind, relations, operators, last, label_hops):
    options = {"operators": operators, "hops": HOPS, "last": last, "label_hops": label_hops, "label_folds": FOLDS}
    given = tuple(relations.split(",")) if relations else ()
    file = propagated(comm, typed[kind], shared_path, relations=given, **options)
    expected = columns_of(typed[kind], SETS[relations], operators, last, label_hops)
    np.testing.assert_allclose(contents(file)[0]["features"], expected, rtol=1e-5, atol=1e-6)
    with GraphFile(file) as opened:
        assert sum(opened.meta.part_widths) == expected.shape[1]
        assert opened.meta.num_label_parts == len(SETS[relations]) * len(operators) * min(
            label_hops, 1 if last else label_hops
        )
    if comm.rank == 0:
        assert all(check.ok for check in verify_graph(file))
        partition_graph(file, [comm.size], num_clusters=12, output=shared_path / "again.h5")
        with GraphFile(shared_path / "again.h5") as again, GraphFile(file) as opened:
            assert again.meta.part_widths == opened.meta.part_widths
    comm.barrier()


def test_outputs_and_gradients_of_sign(comm, typed, shared_path):
    file = propagated(comm, typed["undirected"], shared_path, hops=HOPS, label_hops=2, relations=("0", "1+2"))
    options = {"layers": 2, "dropout": 0.0, "hidden": 6, "precision": "fp64"}
    trainer = build_trainer(comm, configure(file, model="sign", **options), "random-clusters")
    own = dict(trainer.model.named_parameters())
    mine, _, parameters = outputs_and_gradients(trainer, trainer.graph)
    nodes, _ = contents(file)
    parts = torch.from_numpy(nodes["features"]).double().split([4] * 5 + [CLASSES] * 4, 1)

    def linear(name, y):
        return y @ parameters[f"{name}.weight"] + parameters[f"{name}.bias"]

    h = torch.cat([linear(f"convs.0.linears.{k}", part) for k, part in enumerate(parts)], 1)
    expected = linear("convs.1.linear", torch.relu(h))
    oracle.loss(expected, torch.from_numpy(nodes["labels"]), torch.from_numpy(nodes["split"] == 1)).backward()
    np.testing.assert_allclose(mine.detach(), expected.detach()[trainer.graph.ids], rtol=1e-6, atol=1e-8)
    for name, tensor in own.items():
        torch.testing.assert_close(tensor.grad, parameters[name].grad, rtol=1e-6, atol=1e-8)
    comm.barrier()


def test_refusals(comm, typed, shared_path, session_path):
    with pytest.raises(GraphError, match="--relations: expected types of edges of 0, 1, 2, got '3'"):
        propagated(comm, typed["undirected"], shared_path, relations=("0", "1+3"))
    plain = session_path / "label-hops-numbers.h5"
    if comm.rank == 0 and not plain.exists():
        generate_graph("planted", plain, Spec(nodes=40, degree=3, features=2, classes=2, targets=1, seed=1))
        partition_graph(plain, [1, 2, 3, 4], method="random-clusters", num_clusters=8)
    comm.barrier()
    for options, message in (
        ({"relations": ("each",)}, "--relations: the edges of the graph have no types"),
        ({"label_hops": 1}, "--label-hops: expected classes or 0/1 labels"),
    ):
        with pytest.raises(GraphError, match=message):
            propagated(comm, plain, shared_path, **options)
    for wrong in (["--label-folds", "1"], ["--label-hops", "0"], ["--relations", "0,,1"], ["--relations", "0+,1"]):
        with pytest.raises(ConfigError, match=f"{wrong[0]}: expected"):
            build_parser(None).parse_args(["propagate", "-o", "hops.h5", *wrong])
