"""An estimate and a job: every rank sends exactly the estimated bytes and messages.

It also holds the shares that were counted from the file.
"""

from dataclasses import replace

import graphs
import numpy as np
import pytest
from mpi.nodes import emulated
from mpi.small import stored, written
from mpi.training import CLASSES, build_trainer, configure, generated

from hpcgnn.engine.epochs import costs_of_epoch
from hpcgnn.extras.estimate.forecast import CountedGraph
from hpcgnn.extras.estimate.traffic import Traffic
from hpcgnn.graphfile.storage import GraphFile

pytestmark = pytest.mark.ranks(2)

MAP = "random-clusters"


def foretold(comm, config, map_name, per_node=1):
    """The Forecast of a job on a stored map, made by rank 0 for all. Collective. per_node: ranks of a node."""
    made = None
    with comm.together("estimating", on_one=True):
        if comm.rank == 0:
            with GraphFile(config.data.graph) as file:
                made = CountedGraph(file, per_node).forecast(config.replace(partition=map_name), comm.size)
            made = replace(made, experiment=None)  # a configuration does not travel
    return comm.broadcast_object(made)


def of_ranks(comm, traffic):
    """{kind: (bytes (P,), messages (P,), received bytes (P,))} of the ledgers of all ranks. Collective."""
    ledger = {kind: (each.bytes_sent, each.messages, each.bytes_received) for kind, each in traffic.items()}
    ranks = comm.allgather_object(ledger)
    kinds = sorted(set().union(*ranks))
    return {kind: tuple(np.array([each.get(kind, (0, 0, 0)) for each in ranks]).T) for kind in kinds}


def check(comm, config, map_name, per_node=1):
    """Train and evaluate; hold the ledger of the second epoch, and of the evaluation after it, against the Forecast.
    Returns (the Forecast, the Trainer).
    """
    forecast, trainer = foretold(comm, config, map_name, per_node), build_trainer(comm, config, map_name)
    buffers, peers = trainer.buffers, trainer.views.local.inward.plan.peers
    buffers.pieces([buffers.limit * len(peers.ranks)], 0, peers)  # where memory grows, messages are prepared again
    step, closing = ledgers_of_epoch(comm, trainer)
    nothing = np.zeros((3, comm.size), np.int64)
    for kind in {*step, *forecast.halo} - {*forecast.others}:
        expected = forecast.halo.get(kind, Traffic(*nothing))
        found = np.array(step.get(kind, nothing))
        assert found.tolist() == [each.tolist() for each in vars(expected).values()], kind
    check_others(comm, forecast, step, closing)
    check_evaluation(comm, forecast, trainer)
    assert requests_of(trainer) == forecast.requests[comm.rank]
    return forecast, trainer


def requests_of(trainer):
    """How many messages this rank has prepared, and not given up since."""
    found, rank = 0, trainer.comm.rank
    transfers = [each for cuts in trainer.buffers.streams.values() for turns in cuts.values() for each in turns]
    for transfer in transfers:
        back = transfer.given.messages(rank, False) + transfer.taken.messages(rank, True)
        found += len(transfer.packed.messages(rank, True) + transfer.received.messages(rank, False))
        found += len(back) if transfer.back is not None else 0
    return found


def ledgers_of_epoch(comm, trainer):
    """`of_ranks` of the second epoch from now on, and of the messages at its end."""
    trainer.step(0)
    comm.ledger.take()
    trainer.step(1)
    step = of_ranks(comm, comm.ledger.take())
    comm.ledger.take()  # what asking for all took
    costs_of_epoch(trainer)
    closing = of_ranks(comm, comm.ledger.take())
    comm.ledger.take()
    return step, closing


def check_others(comm, forecast, step, closing):
    """Every rank's traffic but for the halo."""
    nothing = np.zeros((3, comm.size), np.int64)
    for kind, (messages, sent) in forecast.others.items():
        found = (np.array(step.get(kind, nothing)) + np.array(closing.get(kind, nothing)))[:2]
        assert found.tolist() == [[sent] * comm.size, [messages] * comm.size], kind


def check_evaluation(comm, forecast, trainer):
    """All that an evaluation sends: its halo, and the sums of its metric. Questions asked once come before."""
    trainer.evaluate()
    comm.ledger.take()
    trainer.evaluate()
    sent, told = of_ranks(comm, comm.ledger.take()), forecast.metrics
    comm.ledger.take()
    found = np.array(sent.get("evaluation", np.zeros((3, comm.size))), np.int64)
    for index, name in enumerate(("messages", "bytes")):
        expected = sum((getattr(each, name) for each in forecast.evaluation.values()), np.zeros(comm.size, np.int64))
        assert found[1 - index].tolist() == (expected + told[index]).tolist(), name


@pytest.fixture(scope="module")
def paths(comm, session_path):
    """{name: path}: graphs of 240 nodes with few training nodes; 'typed' has types of edges."""
    common = {"nodes": 240, "features": 12, "classes": CLASSES, "seed": 3}
    kinds = {
        "undirected": {},
        "directed multi-label": {"directed": True, "multi_label": True, "weighted": True},
        "few train": {"train": 1 / 40, "degree": 3},
        "few train, directed": {"train": 1 / 40, "degree": 3, "directed": True},
        "typed": {"edge_types": 3},
    }
    return {
        name: generated(comm, session_path / f"estimated-{name.replace(' ', '-')}.h5", 32, (MAP,), **common, **options)
        for name, options in kinds.items()
    }


GAT = {"model": "gat", "heads": 2, "hidden": 8}
LEAST = {"halo": "least"}
PRUNED = {"prune": "auto", "layers": 3}
OPTIONS = {
    "gcn": {},
    "sage": {"model": "sage", "norm": "batch"},
    "gat": {**GAT, "attention_dropout": 0.3},
    "gin": {"model": "gin", "residual": True},
    "sgc": {"model": "sgc"},
    "pna": {"model": "pna"},
    "transformer": {"model": "transformer", "heads": 2, "hidden": 8},
    "raw": {"model": "sage", "input_dropout": "raw", "hidden": 32, "layers": 3},
    "gatv2": {"model": "gatv2", "heads": 2, "hidden": 8},
    "appnp": {"model": "appnp", "hops": 3},
    "gat, linear residual": {**GAT, "linear_residual": True},
    # Added loops are one relation more.
    "rgcn": {"model": "rgcn", "self_loops": "keep"},
    "rgcn, added loops": {"model": "rgcn", "self_loops": "add"},
    "gcn, bf16": {"halo_dtype": "bf16"},
    "gcn, mixed": {"precision": "mixed", "halo_buffer": 0.01},
    "gcn, fp64, rows of the features": {"precision": "fp64", "keep_input": "never", "dropout": 0.0},
    "gcn, int8": {"halo_dtype": "int8"},
    "sage, tiny buffer": {"model": "sage", "halo_buffer": 0.01, "norm": "batch", "layers": 3},
    "gat, tiny buffer": {**GAT, "attention_dropout": 0.3, "halo_buffer": 0.02, "layers": 3},
    "sage, tiny buffer, int8": {"model": "sage", "halo_dtype": "int8", "halo_buffer": 0.01},
    "gat, tiny buffer, int8": {"model": "gat", "halo_dtype": "int8", "halo_buffer": 0.02},
    "gcn, fewest rows": {**LEAST, "layers": 3},
    "gin, as few rows as pay": {"model": "gin", "halo": "auto", "layers": 3},
    "sage, fewest rows, tiny buffer, int8": {"model": "sage", **LEAST, "halo_dtype": "int8", "halo_buffer": 0.01},
    "pruned sage": {**PRUNED, "model": "sage"},
    "pruned gat": {**PRUNED, **GAT, "dropout": 0.0},
    "pruned, fewest rows": {**PRUNED, "model": "sage", **LEAST},
}


def graph_of(name, directed):
    if "rgcn" in name:
        return "typed"
    if "pruned" in name:
        return "few train" + ", directed" * directed
    return "directed multi-label" if directed else "undirected"


# On graphs of both kinds in turn.
CASES = [(graph_of(name, number % 2), name) for number, name in enumerate(OPTIONS)]


def check_case(comm, path, options, map_name=MAP, per_node=1):
    """`check`, and the counts of the shares that such a job has."""
    config = configure(path, **{"layers": 2, **options})
    forecast, trainer = check(comm, config, map_name, per_node)
    assert forecast.parameters == sum(each.numel() for each in trainer.model.parameters())
    assert trainer.buffers.nbytes <= trainer.buffers.limit
    if options.get("prune") == "auto":
        assert forecast.counted and any(trainer.views.shares)
    return forecast, trainer


@pytest.mark.parametrize("graph, model", CASES)
def test_models(comm, paths, graph, model):
    check_case(comm, paths[graph], OPTIONS[model])


#: Of these, ranks of a node read each other's rows in place.
IN_PLACE = (
    *("gcn", "gin, as few rows as pay", "gatv2", "raw", "gcn, mixed", "gat, tiny buffer", "gat, tiny buffer, int8"),
    *("sage, tiny buffer", "sage, fewest rows, tiny buffer, int8"),
    *("gcn, fewest rows", "pruned sage", "pruned gat", "pruned, fewest rows"),
)


@pytest.mark.ranks(4)
@pytest.mark.parametrize("per_node", [2, 3])
@pytest.mark.parametrize("graph, model", [case for case in CASES if case[1] in IN_PLACE])
def test_ranks_of_a_node(comm, paths, per_node, graph, model):
    """Rows of a node are read in place, and nodes send. The last node has the ranks that are left."""
    with emulated(comm, comm.rank // per_node):
        _, trainer = check_case(comm, paths[graph], {**OPTIONS[model], "intra_node": "shared"}, per_node=per_node)
        assert trainer.views.in_place is not None


# Ranks without nodes, nodes without edges, hubs, maps that cut nothing.
ODD = [(name, "one empty") for name in ("no edges", "random undirected weighted")]
ODD += [("star", "all on last"), ("random directed weighted", "dealt")]


@pytest.mark.ranks(4)
@pytest.mark.parametrize("options", [{}, LEAST, {**GAT, "halo_buffer": 0.02}], ids=["rows", "fewest", "gat"])
@pytest.mark.parametrize("name, map_name", ODD)
def test_odd_graphs(comm, session_path, name, map_name, options):
    """As messages between ranks, and as rows of a node."""
    path = stored(comm, session_path, name)[2]
    for per_node, how in ((1, "messages"), (2, "shared"), (3, "shared")):
        with emulated(comm, comm.rank // per_node):
            _, trainer = check_case(comm, path, {**options, "layers": 3, "intra_node": how}, map_name, per_node)
            assert (trainer.views.in_place is not None) == (how == "shared")


@pytest.mark.ranks(4)
@pytest.mark.parametrize("per_node", [2, 3])
@pytest.mark.parametrize("name", ["no edges", "random directed weighted"])
def test_the_choice_is_that_of_the_run(comm, session_path, per_node, name, monkeypatch):
    """--intra-node auto, by the same counts where nodes have many ranks. Few send messages."""
    config = configure(stored(comm, session_path, name)[2], partition="dealt")

    def chosen(many):
        monkeypatch.setattr("hpcgnn.plan.run_plan.MANY_RANKS", many)
        with GraphFile(config.data.graph) as file:
            made = CountedGraph(file, per_node=per_node).forecast(config, comm.size)
        return made.experiment.plan.in_place, made.shares.crossing

    with emulated(comm, comm.rank // per_node):
        trainer = build_trainer(comm, config, "dealt")
    in_place, crossing = chosen(per_node)
    assert in_place == trainer.plan.in_place == (name != "no edges") and not chosen(per_node + 1)[0]
    assert not in_place or crossing == trainer.views.crossing


APPROXIMATE = {
    "lazy": {"schedule": "lazy", "epochs": 5},
    "lazy, gat": {"schedule": "lazy", "model": "gat", "layer_epochs": "2,3"},
    "bns": {"schedule": "bns", "boundary_rate": 0.5},
    "tma": {"schedule": "tma", "average_steps": 3, "epochs": 6},
    "tma, corrected": {"schedule": "tma", "average_steps": 2, "epochs": 6, "correct_every": 2},
}


@pytest.mark.parametrize("schedule", APPROXIMATE)
def test_other_schedules(comm, paths, schedule):
    """They have a Forecast, with memory for every part; a step of it adds up gradients or parameters."""
    forecast = foretold(comm, configure(paths["undirected"], layers=2, **APPROXIMATE[schedule]), MAP)
    assert forecast.largest.growth > 0 and forecast.largest.loaded > 0
    assert forecast.others.keys() & {"allreduce", "average"}
    assert forecast.mean.multiplied and all(len(each.bytes) == comm.size for each in forecast.halo.values())


@pytest.mark.parametrize("schedule", ["lazy", "lazy, gat"])
def test_a_schedule_of_stages_is_told_by_the_last(comm, paths, schedule):
    """Every layer has parameters of its own, so stages differ in their sums; summary.json has the last epoch."""
    config = configure(paths["undirected"], layers=2, **APPROXIMATE[schedule])
    forecast, trainer = foretold(comm, config, MAP), build_trainer(comm, config, MAP)
    ledgers = []
    for number in range(len(trainer.stages)):
        trainer.begin_stage(number, 0)
        ledgers.append(ledgers_of_epoch(comm, trainer))
    check_others(comm, forecast, *ledgers[-1])
    first, last = (step["allreduce"][0][0] for step, _ in (ledgers[0], ledgers[-1]))
    assert first != last == forecast.others["allreduce"][1]


def test_pruning_as_the_graph_has_it(comm, session_path):
    """Where training nodes are neighbours, their neighbourhoods are small; in a random copy they are not."""
    graph = graphs.with_task(graphs.rings(count=4, n=100))
    split = np.where(np.arange(graph.num_nodes) % 100 < 24, graphs.TRAIN, graphs.TEST).astype(np.uint8)
    graph = replace(graph, split=split, labels=np.zeros(graph.num_nodes, np.int64))
    path = written(comm, session_path, graph, "estimated")[2]
    _, trainer = check(comm, configure(path, prune="auto", model="sage"), "dealt")
    assert sum(share is not None for share in trainer.views.shares) == 3
