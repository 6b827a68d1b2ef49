"""Edge dropout over ranks: a step on some of the edges is a step on the graph that has these alone, whatever the number
of ranks; evaluation sees all edges.
"""

from dataclasses import replace

import graphs
import numpy as np
import oracle
import pytest
import torch

from hpcgnn.app.edge_weights import check_weights
from hpcgnn.effects import without_effect
from hpcgnn.errors import ConfigError, GraphError
from hpcgnn.nn.spec import ModelSpec
from hpcgnn.plan.choices import registry_choices
from hpcgnn.plan.halo import check_halo
from hpcgnn.schedules.full_halo import FullHalo
from partition_tools.cli.generate_graph import generate_graph
from partition_tools.cli.partition_graph import partition_graph
from partition_tools.generators.spec import Spec

from ..gathering import whole
from ..nn import test_models
from ..nn.test_models import EPOCH, SEED, make_trainer, on_rank_0, right, spec_of
from ..training import build_trainer, configure, outputs_and_gradients

pytestmark = pytest.mark.ranks(2, 3)

RATE = 0.4


def canonical(graph):
    """The graph with edges of the same two nodes in the order of their weights, as files have them."""
    order = np.argsort(graph.weight, kind="stable")
    return replace(graph, src=graph.src[order], dst=graph.dst[order], weight=graph.weight[order])


# With equal edges of different weights, loops, and nodes without edges.
GRAPHS = {
    graph.name: graphs.with_task(canonical(graph), num_features=10, num_classes=test_models.CLASSES)
    for graph in (graphs.random_undirected(weighted=True), graphs.random_directed(weighted=True))
}
UNDIRECTED, DIRECTED = GRAPHS


def left(graph, seed, epoch):
    """The graph of the edges that are left in an epoch."""
    key = oracle.stream_key(seed, epoch, 0, oracle.DROPPED_EDGE)
    ends = "rows_are_either" if graph.undirected else "rows_are_destinations"
    kept = oracle.kept_edges(key, graph.dst, graph.src, ends, RATE)
    assert 0.5 < kept.mean() < 0.75, "some are left, among them all loops"
    return replace(graph, src=graph.src[kept], dst=graph.dst[kept], weight=graph.weight[kept])


@pytest.fixture(scope="module")
def files(comm, session_path):
    """{name: (layout, path, path of the file of what is left in epoch 0)}."""
    made = {}
    for name, graph in GRAPHS.items():
        where, paths = graphs.layout(graph, comm.size), [session_path / f"dropped-{name}{i}.h5" for i in range(2)]
        if comm.rank == 0:
            for path, each in zip(paths, (graph, left(graph, 5, 0))):
                graphs.write_file(path, each, where, comm.size)
        made[name] = where, *paths
    comm.barrier()
    return made


CASES = [("gcn", UNDIRECTED), ("gcn", DIRECTED), ("sage", DIRECTED), ("gin", UNDIRECTED), ("sgc", UNDIRECTED)]


@pytest.mark.parametrize("kind, name", CASES)
def test_outputs_and_gradients_are_those_of_the_graph_that_is_left(comm, files, kind, name):
    graph, (where, path, _) = GRAPHS[name], files[name]
    spec = spec_of(kind, edge_dropout=RATE, keep_input="never")
    local, trainer = make_trainer(comm, spec, path, where.maps["random"], edge_dropout=RATE, prune="none")
    state = dict(trainer.model.named_parameters())
    for epoch in (EPOCH - 1, EPOCH):  # the second draw is not the first, nor are its degrees
        trainer.random.epoch = epoch
        trainer.schedule.halo.begin_epoch(epoch)
        trainer.model(trainer.graph)
    logits, loss, gradients = on_rank_0(comm, right, left(graph, SEED, EPOCH), spec, state, True)
    mine, share, _ = outputs_and_gradients(trainer, trainer.graph)
    np.testing.assert_allclose(whole(comm, local, mine), logits, rtol=0, atol=1e-9)
    assert float(comm.total(share.detach().clone())) == pytest.approx(loss, abs=1e-9)
    for parameter in state:
        torch.testing.assert_close(state[parameter].grad, gradients[parameter], rtol=0, atol=1e-9)
    logits, _, _ = on_rank_0(comm, right, graph, spec, state, False)
    trainer.model.eval()
    with torch.no_grad():
        np.testing.assert_allclose(whole(comm, local, trainer.model(trainer.graph)), logits, rtol=0, atol=1e-9)


OTHERS = {
    "appnp": (UNDIRECTED, {"hops": 3}),
    "gat": (UNDIRECTED, {"heads": 2, "attention_dropout": 0.3}),
    "gat, weights": (DIRECTED, {"model": "gat", "heads": 2, "edge_term": "weight"}),
    "transformer": (UNDIRECTED, {"heads": 2, "attention_dropout": 0.3}),
    "sage": (DIRECTED, {"aggregator": "pool"}),
}


def one_step(comm, config, map_name):
    """(loss, parameters after a step)."""
    trainer = build_trainer(comm, config, map_name, 7)
    return trainer.step(0), trainer.evaluated_state()


@pytest.mark.parametrize("kind", OTHERS)
def test_a_step_is_one_on_a_file_of_what_is_left(comm, files, kind):
    name, options = OTHERS[kind]
    _, path, of_left = files[name]
    usual = {"model": kind, "hidden": 6, "layers": 2, "dropout": 0.3, "optimizer": "sgd", "precision": "fp64"}
    config = configure(path, **{**usual, **options}, edge_dropout=RATE)
    alone = config.replace(graph=str(of_left), edge_dropout=0.0, keep_input="never")
    loss, state = on_rank_0(comm, one_step, None, alone, None)
    for map_name in ("random", "one empty"):
        found, parameters = one_step(comm, config, map_name)
        assert found == pytest.approx(loss, rel=1e-10)
        for parameter, value in parameters.items():
            torch.testing.assert_close(value, state[parameter], rtol=1e-7, atol=1e-10)


@pytest.fixture(scope="module")
def planted(comm, session_path):
    """{name: path} of graphs, of which a few nodes train, or most."""
    made, common = {}, {"nodes": 240, "features": 12, "classes": 4, "seed": 3}
    for name, options in {
        "undirected": {"degree": 3, "train": 1 / 24},
        "directed": {"degree": 4, "directed": True, "train": 1 / 24},
        "most train": {"degree": 4, "train": 0.7},
    }.items():
        made[name] = session_path / f"dropped-planted-{name}.h5"
        if comm.rank == 0:
            generate_graph("planted", made[name], Spec(**common, **options))
            partition_graph(made[name], [1, 2, 3, 4], method="random-clusters", num_clusters=32)
    comm.barrier()
    return made


CURVES = {
    "gcn": ("directed", {"norm": "layer"}),
    "gcn, pruned": ("undirected", {"model": "gcn", "prune": "auto"}),
    "gcn, pruned, directed": ("directed", {"model": "gcn", "prune": "auto"}),
    "gat, pruned": ("undirected", {"model": "gat", "heads": 2, "prune": "auto"}),
    "pna": ("undirected", {}),
    "inductive": ("most train", {"model": "gcn", "inductive": True}),
    "links": ("most train", {"model": "sage", "task": "links", "negatives": 2}),
    "mixed": ("undirected", {"model": "gcn", "precision": "mixed"}),
}


def curve_and_scores(comm, config, map_name):
    """(losses, the metrics in the end, the same without edge dropout, the Trainer)."""
    trainer = build_trainer(comm, config, map_name, 20)
    losses = [trainer.step(epoch) for epoch in range(3)]
    plain = build_trainer(comm, config.replace(edge_dropout=0.0, keep_input="never"), map_name, 20)
    plain.model.load_state_dict(trainer.model.state_dict())
    scores, of_all = ([each.evaluate()[split] for split in ("train", "val", "test")] for each in (trainer, plain))
    return losses, scores, of_all, trainer


@pytest.mark.parametrize("kind", CURVES)
def test_the_curve_does_not_depend_on_the_ranks(comm, planted, kind):
    name, options = CURVES[kind]
    usual = {"model": kind, "hidden": 6, "layers": 2, "dropout": 0.3, "precision": "fp64", "lr": 0.03}
    config = configure(planted[name], **{**usual, **options}, edge_dropout=RATE)
    # Rows that nobody sees are not computed, which changes nothing.
    expected = on_rank_0(comm, lambda one: curve_and_scores(None, one, None)[0], config.replace(prune="none"))
    losses, scores, of_all, trainer = curve_and_scores(comm, config, "random-clusters")
    np.testing.assert_allclose(losses, expected, rtol=1e-2 if kind == "mixed" else 1e-9)
    assert scores == pytest.approx(of_all, nan_ok=True)
    assert any(trainer.views.shares) == ("pruned" in kind)
    if kind == "links":
        assert trainer.objective.num_train > 0.75 * trainer.local.num_nodes, "all training edges are asked"
    plain = build_trainer(comm, config.replace(edge_dropout=0.0, keep_input="never"), "random-clusters", 20)
    assert abs(plain.step(0) - losses[0]) > 1e-5 * losses[0], "edges must be missing, or this says little"


def test_without_it_nothing_is_made(comm, planted):
    trainer = build_trainer(comm, configure(planted["undirected"], model="gcn"), "random-clusters")
    assert type(trainer.schedule.halo) is FullHalo and trainer.schedule.halo.kept_bytes == 0
    config = configure(planted["undirected"], model="gcn", edge_dropout=0.9, prune="none")
    trainer = build_trainer(comm, config, "random-clusters")
    trainer.step(0)
    # What there may be left of the edges is there beside all of them, and row pointers.
    edges, blocks = trainer.local.inward.num_edges, (trainer.local.inward.own, *trainer.local.inward.halo)
    pointers = sum(block.indptr.nbytes + (0 if block.rows is None else block.rows.nbytes) for block in blocks)
    assert pointers < trainer.schedule.halo.kept_bytes <= pointers + 4 * edges


def test_what_does_not_go_together_is_refused(comm, planted, files):
    path = planted["undirected"]
    for options, message in (
        ({"schedule": "bns"}, r"--edge-dropout 0.5 has no effect as it stands \(for --schedule sar, got bns\)"),
        ({"model": "sign"}, r"--edge-dropout 0.5 has no effect as it stands \(not for --model sign\)"),
        ({"model": "rgcn"}, r"--edge-dropout 0.5 has no effect as it stands \(not for --model rgcn\)"),
    ):
        config = configure(path, edge_dropout=0.5, **options)
        with pytest.raises(ConfigError, match=message):
            without_effect(config, {"edge_dropout": 0.5}, {}, registry_choices())
    with pytest.raises(ConfigError, match="--keep-input always keeps an aggregate that does not change, got --edge-dr"):
        configure(path, edge_dropout=0.5, keep_input="always")
    spec = ModelSpec(model="gcn", d_in=10, classes=3, layers=2, hidden=4, weighted=True, edge_dropout=0.5)
    for options, message in (
        ({"halo": "least"}, "--halo least: .*no --edge-dropout"),
        ({"intra_node": "shared"}, "--intra-node shared: .*no --edge-dropout"),
    ):
        with pytest.raises(ConfigError, match=message):
            check_halo(configure(path, model="gcn", edge_dropout=0.5, **options), spec)
    where, weighted, _ = files[UNDIRECTED]
    local = graphs.load(weighted, where.maps["random"], comm)
    check_weights(local, spec, comm)
    own = replace(local.inward.own, weight=-local.inward.own.weight)
    inward = replace(local.inward, own=own)
    with pytest.raises(GraphError, match="edges have weights below 0, and gcn divides by the sum of those that --edge"):
        check_weights(replace(local, inward=inward, outward=inward), spec, comm)
