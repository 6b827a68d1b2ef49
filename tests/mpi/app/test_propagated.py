"""`hpcgnn propagate` and --model sign on every number of ranks: hops, outputs and gradients beside dense matrices, what
is sent, and the graph file that comes of it.
"""

from types import SimpleNamespace

import graphs
import h5py
import numpy as np
import oracle
import pytest
import torch

from hpcgnn.__main__ import build_parser
from hpcgnn.app.hops import OPERATORS, Request
from hpcgnn.app.predict import Request as Prediction
from hpcgnn.app.predict import predict
from hpcgnn.app.propagate import propagate_features
from hpcgnn.app.resuming import options_of_run
from hpcgnn.app.train import train
from hpcgnn.cli.propagate import _NAMES
from hpcgnn.config import make_config
from hpcgnn.errors import ConfigError, GraphError
from hpcgnn.graphfile.storage import GraphFile
from partition_tools.cli.partition_graph import partition_graph
from partition_tools.cli.verify_graph import verify_graph

from ..small import written
from ..training import CHOICES, build_trainer, configure, curve, make_graphs, outputs_and_gradients

pytestmark = pytest.mark.ranks(2)

HOPS, TELEPORT = 2, 0.3


@pytest.fixture(scope="module")
def odd(comm, session_path):
    """[(graph, file)]"""
    made = [graphs.random_undirected(weighted=True), graphs.random_directed(), graphs.no_edges()]
    return [written(comm, session_path, graphs.with_task(graph), "sign")[::2] for graph in made]


def propagated(comm, path, folder, map_name="random", **options):
    """The file that the command writes of a graph on all ranks. Collective."""
    request = Request(str(folder / "hops.h5"), teleport=TELEPORT, force=True, **options)
    config = configure(path, partition=map_name, precision="fp64")
    assert propagate_features(config, SimpleNamespace(comm=comm, threads=1), request) == 0
    return folder / "hops.h5"


def parts_of(graph, operators, hops, last=False):
    """The same columns by dense matrices, of nodes in their original order."""
    a, x = oracle.adjacency(graph.num_nodes, graph.src, graph.dst, graph.weight, "add"), graph.features.astype(float)
    found = [] if last else [x]
    for name in operators:
        s, y = oracle.operator(a, {"ppr": "sym"}.get(name, name)), x
        for hop in range(hops):
            y = (1 - TELEPORT) * (s @ y) + TELEPORT * x if name == "ppr" else s @ y
            if not last or hop == hops - 1:
                found.append(y)
    return np.concatenate(found, 1)


@pytest.mark.parametrize("last", [False, True])
def test_hops_beside_dense_matrices(comm, odd, shared_path, last):
    names = tuple(OPERATORS)
    for graph, path in odd:
        file = propagated(comm, path, shared_path, operators=names, hops=HOPS, last=last)
        with h5py.File(file) as made, h5py.File(path) as source:
            expected = parts_of(graph, names, HOPS, last)[made["nodes/original_id"][:]]
            np.testing.assert_allclose(made["nodes/features"][:], expected, rtol=1e-6, atol=1e-7)
            assert made.attrs["uuid"] != source.attrs["uuid"]
            for name in ("topology/indices", "nodes/labels", "clusters/offsets", f"partitionings/random/{comm.size}"):
                assert (made[name][:] == source[name][:]).all()
        comm.barrier()


@pytest.mark.parametrize("layers", [1, 3])
def test_outputs_gradients_and_nothing_sent(comm, odd, shared_path, layers):
    for graph, path in odd[:2]:
        file = propagated(comm, path, shared_path, operators=("sym", "mean"), hops=HOPS)
        x = torch.from_numpy(parts_of(graph, ("sym", "mean"), HOPS).astype(np.float32)).double()
        options = {"model": "sign", "layers": layers, "dropout": 0.0, "hidden": 6, "precision": "fp64"}
        trainer = build_trainer(comm, configure(file, residual=True, **options), "one empty")
        trainer.comm.ledger.take()
        own = dict(trainer.model.named_parameters())
        mine, _, parameters = outputs_and_gradients(trainer, trainer.graph)

        def linear(name, y):
            return y @ parameters[f"{name}.weight"] + parameters[f"{name}.bias"]

        h = x
        if layers > 1:
            parts = [linear(f"convs.0.linears.{k}", part) for k, part in enumerate(x.chunk(1 + 2 * HOPS, 1))]
            h = torch.relu(linear("convs.1.linear", torch.relu(torch.cat(parts, 1))))
        expected = linear(f"convs.{layers - 1}.linear", h)
        labels, nodes = torch.from_numpy(graph.labels), torch.from_numpy((graph.split == 1) & (graph.labels >= 0))
        oracle.loss(expected, labels, nodes).backward()
        np.testing.assert_allclose(mine.detach(), expected.detach()[trainer.graph.ids], rtol=1e-5, atol=1e-6)
        for name, tensor in own.items():
            torch.testing.assert_close(tensor.grad, parameters[name].grad, rtol=1e-5, atol=1e-6)
        trainer.step(0)
        trainer.evaluate()
        sent = {kind for kind, entry in trainer.comm.ledger.take().items() if entry.bytes_sent}
        assert sent <= {"allreduce", "metrics", "evaluation"} and trainer.model.prunable_layers == 0
        comm.barrier()


@pytest.fixture(scope="module")
def planted(comm, session_path):
    return make_graphs(comm, session_path, nodes=300)


def test_one_layer_of_the_last_hop_is_sgc(comm, planted, shared_path):
    for name in planted:
        file = propagated(comm, planted[name], shared_path, "metis", hops=3, last=True)
        usual = {"layers": 3, "dropout": 0.0, "keep_input": "always", "precision": "fp64"}
        expected = curve(comm, configure(planted[name], model="sgc", **usual), "metis", None, 6)
        found = curve(comm, configure(file, model="sign", **{**usual, "layers": 1}), "metis", None, 6)
        np.testing.assert_allclose(found, expected, rtol=1e-5)
        comm.barrier()


@pytest.mark.usefixtures("no_pictures")
def test_a_run_on_any_number_of_ranks(comm, planted, shared_path):
    """With dropout, batch norm and resuming; partitioned anew, and on to predictions."""
    file = propagated(comm, planted["undirected"], shared_path, "metis", operators=("sym", "ppr"))
    options = {"model": "sign", "dropout": 0.3, "norm": "batch"}
    expected = comm.broadcast_object(curve(comm, configure(file, **options), None, None, 4) if comm.rank == 0 else None)
    np.testing.assert_allclose(curve(comm, configure(file, **options), "metis", None, 4), expected, rtol=1e-4)
    assert expected[-1] < expected[0]
    config = configure(file, model="sign", dropout=0.3, precision="fp64")
    trainer = build_trainer(comm, config.replace(prune="auto"), "metis")
    rows = comm.total(torch.tensor(trainer.views.rows_computed(len(trainer.model.convs)))).tolist()
    assert rows == [int(trainer.objective.num_train)] * 3 and rows[0] < 300  # the training nodes, and no others
    expected = curve(comm, config, "metis", None, 3)
    np.testing.assert_allclose([trainer.step(epoch) for epoch in range(3)], expected, rtol=1e-12)
    again = shared_path / "again.h5"
    if comm.rank == 0:
        partition_graph(file, [comm.size], num_clusters=20, output=again)
        assert all(check.ok for check in verify_graph(again))
    comm.barrier()
    with GraphFile(again) as opened:
        assert opened.meta.num_feature_parts == 5
    session, run_dir = SimpleNamespace(comm=comm, threads=1), str(shared_path / "run")
    config = configure(again, run_dir=run_dir, epochs=3, partition="metis", **options)
    assert train(config, session) == 0
    assert train(config.replace(epochs=5, resume=True), session) == 0
    comm.barrier()
    config = make_config(options_of_run(run_dir, {}), CHOICES)
    assert predict(config, session, "last", Prediction(str(shared_path / "p.h5"), layer=1)) == 0
    comm.barrier()
    with h5py.File(shared_path / "p.h5") as found:
        assert found["embedding"].shape == (300, 5 * 16)


def test_what_does_not_go_together_is_refused(comm, planted, shared_path):
    path, session = planted["undirected"], SimpleNamespace(comm=comm, threads=1)
    for options, message in (
        ({"schedule": "lazy"}, "--schedule lazy is not for --model sign"),
        ({"features": "degree"}, "--features degree is not for --model sign"),
        ({"label_reuse": 0.5}, "--label-reuse 0.5 is not for --model sign"),
        ({"inductive": True}, "--inductive is not for --model sign"),
    ):
        with pytest.raises(ConfigError, match=message):
            configure(path, model="sign", **options)
    with pytest.raises(ConfigError, match="sign has no layers to see"):
        build_trainer(comm, configure(path, model="sign", jumping="cat"))
    with pytest.raises(ConfigError, match="is the input itself"):
        propagate_features(configure(path, partition="metis"), session, Request(str(path)))
    with pytest.raises(ConfigError, match="is the input itself"):
        propagate_features(configure(path, partition="metis"), session, Request(str(path), force=True))
    negative = graphs.with_task(graphs.random_directed(weighted=True))
    negative = graphs.replace(negative, weight=-abs(negative.weight), name="negative")
    _, _, file = written(comm, shared_path, negative, "sign")
    with pytest.raises(GraphError, match="sum to less than 0, and sym and ppr divide"):
        propagated(comm, file, shared_path)
    assert sorted(path.name for path in shared_path.iterdir()) == [file.name], "and no temporary file"
    propagated(comm, file, shared_path, operators=("mean",))
    assert set(_NAMES) == set(OPERATORS)
    for wrong in (["--operators", "sym,gcn"], ["--operators", "sym,sym"], ["--hops", "0"], ["--teleport", "2"]):
        with pytest.raises(ConfigError, match=f"{wrong[0]}: expected"):
            build_parser(None).parse_args(["propagate", "-o", "hops.h5", *wrong])
