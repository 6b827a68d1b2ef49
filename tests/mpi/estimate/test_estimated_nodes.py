"""An estimate and a job whose ranks read rows of their node in place: every rank sends what was foretold, byte for byte
and message for message.
"""

import pytest

from hpcgnn.estimate.counts.sources import CountedGraph
from hpcgnn.graphfile.storage import GraphFile

from ..nodes import emulated
from ..small import stored
from ..training import build_trainer, configure
from .test_estimated import MAP, ODD, check, paths  # noqa: F401  (a fixture)

pytestmark = pytest.mark.ranks(4)

CASES = {
    "gcn": {"layers": 2},
    "gcn, fewest rows": {"halo": "least"},
    "gin, as few rows as pay": {"model": "gin", "halo": "auto"},
    "sage, tiny buffer": {"model": "sage", "halo_buffer": 0.01, "norm": "batch"},
    "sage, fewest rows, tiny buffer, int8": {
        "model": "sage",
        "halo": "least",
        "halo_dtype": "int8",
        "halo_buffer": 0.01,
    },
    "gcn, mixed": {"precision": "mixed", "halo_buffer": 0.01},
    "gat, tiny buffer": {"model": "gat", "heads": 2, "hidden": 8, "attention_dropout": 0.3, "halo_buffer": 0.02},
    "gat, tiny buffer, int8": {"model": "gat", "halo_dtype": "int8", "halo_buffer": 0.02},
    "gatv2": {"model": "gatv2", "heads": 2, "hidden": 8, "layers": 2},
    "raw": {"model": "sage", "input_dropout": "raw", "hidden": 32},
}
PRUNED = {
    "sage": {"model": "sage"},
    "fewest rows, tiny buffer": {"model": "sage", "halo": "least", "halo_buffer": 0.01},
    "gat": {"model": "gat", "heads": 2, "hidden": 8, "dropout": 0.0},
}


@pytest.fixture(scope="module", params=[2, 3])
def per_node(request, comm):
    """Ranks of a node; the last node has those that are left."""
    with emulated(comm, comm.rank // request.param):
        yield request.param


def _check(comm, config, map_name, per_node):
    forecast, trainer = check(comm, config, map_name, per_node)
    assert trainer.views.in_place is not None
    assert trainer.buffers.nbytes <= trainer.buffers.limit
    return forecast, trainer


DIRECTED = "gcn, fewest rows", "sage, tiny buffer", "gat, tiny buffer"


@pytest.mark.parametrize(
    "graph, case", [("undirected", case) for case in CASES] + [("directed multi-label", case) for case in DIRECTED]
)
def test_models(comm, paths, per_node, graph, case):  # noqa: F811
    _check(comm, configure(paths[graph], intra_node="shared", **CASES[case]), MAP, per_node)


@pytest.mark.parametrize("graph", ["few train", "few train, directed"])
@pytest.mark.parametrize("case", PRUNED)
def test_pruned_layers(comm, paths, per_node, graph, case):  # noqa: F811
    options = {"intra_node": "shared", "prune": "auto", **PRUNED[case]}
    forecast, trainer = _check(comm, configure(paths[graph], **options), MAP, per_node)
    assert forecast.counted and any(trainer.views.shares)


def test_inductive(comm, paths, per_node):  # noqa: F811
    """Training sends rows of the subgraph, an evaluation those of the whole graph."""
    for options in ({"model": "sage", "halo": "least"}, {"model": "gat", "heads": 2, "hidden": 8}):
        _check(comm, configure(paths["undirected"], inductive=True, intra_node="shared", **options), MAP, per_node)


@pytest.mark.parametrize("name, map_name", ODD)
def test_odd_graphs(comm, session_path, per_node, name, map_name):
    """Ranks without nodes, nodes without edges, hubs, maps that cut nothing."""
    path = stored(comm, session_path, name)[2]
    for options in ({"halo": "rows"}, {"halo": "least"}, {"model": "gat", "heads": 2, "halo_buffer": 0.02}):
        _check(comm, configure(path, intra_node="shared", **options), map_name, per_node)


@pytest.mark.processes
@pytest.mark.parametrize("name", ["no edges", "random directed weighted"])
def test_the_choice_is_that_of_the_run(comm, session_path, per_node, name, monkeypatch):
    """--intra-node auto, by the same counts where shared memory has huge pages. Without, few ranks send messages."""
    monkeypatch.setattr("hpcgnn.estimate.counts.sources.huge_pages", lambda: huge)
    config = configure(stored(comm, session_path, name)[2])
    trainer, made = build_trainer(comm, config, "dealt"), None
    with comm.together("estimating", on_one=True), GraphFile(config.data.graph) as file:
        if comm.rank == 0:
            source = CountedGraph(file, per_node=per_node)
            huge = False
            assert not source.forecast(config.replace(partition="dealt"), comm.size).experiment.plan.in_place
            huge = True
            made = source.forecast(config.replace(partition="dealt"), comm.size)
    forecast = comm.broadcast_object(made)
    assert forecast.experiment.plan.in_place == trainer.plan.in_place == (name != "no edges")
    if trainer.views.crossing is not None and trainer.plan.in_place:
        assert forecast.shares.crossing == trainer.views.crossing
