"""Edge dropout over ranks: a step on some of the edges equals a step on the graph that has these alone.

This holds for any number of ranks; evaluation sees all edges.
"""

from dataclasses import replace

import graphs
import numpy as np
import oracle
import pytest
import torch
from mpi.nn import test_models
from mpi.nn.test_models import EPOCH, SEED, make_trainer, on_rank_0, spec_of
from mpi.training import build_trainer, configure

from extras.estimate.test_estimated import MAP, check, paths  # noqa: F401
from hpcgnn.errors import ConfigError, GraphError

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
    """{name: (layout, path, path of the file of epoch 0's remaining edges)}."""
    made = {}
    for name, graph in GRAPHS.items():
        where, both = graphs.layout(graph, comm.size), [session_path / f"dropped-{name}{i}.h5" for i in range(2)]
        if comm.rank == 0:
            for path, each in zip(both, (graph, left(graph, 5, 0))):
                graphs.write_file(path, each, where, comm.size)
        made[name] = where, *both
    comm.barrier()
    return made


CASES = [("gcn", UNDIRECTED), ("gcn", DIRECTED), ("sage", DIRECTED), ("gin", UNDIRECTED), ("sgc", UNDIRECTED)]


@pytest.mark.parametrize("kind, name", CASES)
def test_outputs_and_gradients_are_those_of_the_graph_that_is_left(comm, files, kind, name):
    graph, (where, path, _) = GRAPHS[name], files[name]
    spec = replace(spec_of(kind, keep_input="never"), same_edges=False)
    trainer = make_trainer(comm, spec, path, where.maps["random"], edge_dropout=RATE, prune="none")
    for epoch in (EPOCH - 1, EPOCH):  # the second draw is not the first, nor are its degrees
        trainer.random.epoch = epoch
        trainer.schedule.halo.begin_epoch(epoch)
        trainer.model(trainer.graph)
    test_models.check(comm, trainer, spec, left(graph, SEED, EPOCH), graph)


OTHERS = {
    "appnp": (UNDIRECTED, {"hops": 3}),
    "gat": (DIRECTED, {"heads": 2}),
    "transformer": (UNDIRECTED, {"heads": 2, "attention_dropout": 0.3}),
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


@pytest.mark.parametrize("prune", ["none", "auto"])
def test_an_estimate_counts_every_byte(comm, paths, prune):  # noqa: F811
    """With layers that compute all of the rows, and with some that do not."""
    _, trainer = check(comm, configure(paths["few train"], model="gcn", edge_dropout=0.5, prune=prune), MAP)
    assert any(trainer.views.shares) == (prune == "auto")
    # What there may be left of the edges is there beside all of them, and row pointers.
    if not trainer.views.shares:
        edges, blocks = trainer.local.inward.num_edges, (trainer.local.inward.own, *trainer.local.inward.halo)
        pointers = sum(block.indptr.nbytes + (0 if block.rows is None else block.rows.nbytes) for block in blocks)
        assert pointers < trainer.schedule.halo.kept_bytes <= pointers + 4 * edges


REFUSED = [
    ({"halo": "least"}, "--halo least: .*the same edges in all epochs"),
    ({"intra_node": "shared"}, "--intra-node shared: .*the same edges in all epochs"),
    ({"keep_input": "always"}, "--keep-input always keeps an aggregate that does not change, got --edge-dropout 0.5"),
    ({"model": "rgcn"}, "--edge-dropout 0.5 is not for --model rgcn"),
]


@pytest.mark.parametrize("options, message", REFUSED, ids=str)
def test_what_does_not_go_together_is_refused(comm, paths, options, message):  # noqa: F811
    with pytest.raises(ConfigError, match=message):
        build_trainer(comm, configure(paths["undirected"], **{"edge_dropout": 0.5, **options}), MAP)


def test_weights_below_0_are_refused(comm, session_path):
    """The sum of the remaining weights could be near 0."""
    graph, path = graphs.with_task(graphs.random_undirected(weighted=True)), session_path / "dropped-negative.h5"
    where = graphs.layout(graph, comm.size)
    if comm.rank == 0:
        graphs.write_file(path, replace(graph, weight=-graph.weight), where, comm.size)
    comm.barrier()
    with pytest.raises(GraphError, match="edges have weights below 0, and sage divides by the sum of"):
        build_trainer(comm, configure(path, model="sage", edge_dropout=0.5), "random")
