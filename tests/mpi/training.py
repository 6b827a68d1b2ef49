"""Graphs to train on, made once per run of the tests, and training without a run directory."""

import fcntl
import functools
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np

from hpcgnn.comm.communicator import SoloCommunicator
from hpcgnn.config import make_config
from hpcgnn.engine.probe import probe_step
from hpcgnn.engine.trainer import Trainer
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.graph.load import load_local_graph
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.options.inputs import inputs_of
from hpcgnn.plan.choices import registry_choices
from hpcgnn.plan.run_plan import plan
from hpcgnn.plugins.registry import make_plugins
from hpcgnn.tasks.registry import TASKS
from partition_tools.cli.generate_graph import generate_graph
from partition_tools.cli.partition_graph import partition_graph
from partition_tools.generators.spec import Spec

CHOICES = registry_choices()
NODES, FEATURES, CLASSES = 300, 24, 5
GRAPHS = {"undirected": {}, "directed multi-label": {"directed": True, "multi_label": True, "weighted": True}}


def make_graphs(comm, folder, nodes=NODES, **more):
    """{name: path} of generated graphs with maps 'metis' and 'random-clusters' for 1 to 4 and 6 ranks. Collective.

    more: fields of their Spec.
    """
    marks = "".join(f"-{key}{value}" for key, value in more.items())
    paths = {name: folder / f"{name.replace(' ', '-')}-{nodes}{marks}.h5" for name in GRAPHS}
    if comm.rank == 0:
        for name, path in paths.items():
            if not path.exists():
                spec = {"degree": 8, **GRAPHS[name], **more}
                _copy_or_make(path, Spec(nodes=nodes, features=FEATURES, classes=CLASSES, seed=3, **spec))
    comm.barrier()
    return paths


def _copy_or_make(path, spec):
    """Copy a graph from HPCGNN_TEST_GRAPHS, where other runs of the tests left it; or make it, and leave it there."""
    common = Path(os.environ.get("HPCGNN_TEST_GRAPHS", path.parent)) / path.name
    with open(common.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # or parts that begin together would all make it
        if not common.exists():
            with tempfile.TemporaryDirectory(dir=common.parent) as private:
                made = Path(private) / path.name
                generate_graph("planted", made, spec)
                partition_graph(made, [1, 2, 3, 4, 6], num_clusters=64)
                partition_graph(made, [1, 2, 3, 4, 6], method="random-clusters")
                made.rename(common)
    if common != path:
        shutil.copyfile(common, path)


def generated(comm, path, clusters=16, methods=("metis",), **spec):
    """The path of a planted graph with maps for these ranks and for one, made unless it is there. Collective."""
    if comm.rank == 0 and not path.exists():
        usual = {"nodes": 200, "degree": 6, "features": 4, "classes": 3, "seed": 1}
        generate_graph("planted", path, Spec(**{**usual, **spec}))
        for method in methods:
            partition_graph(path, sorted({1, comm.size}), method=method, num_clusters=clusters)
    comm.barrier()
    return path


def few_train(comm, folder):
    """{name: path} of graphs where one node in forty trains, and few are within two steps of a training node."""
    return make_graphs(comm, folder, nodes=600, train=1 / 40, degree=3)


def configure(path, **options):
    """A Config of a small model on a graph.

    Nothing is pruned and all rows travel unless asked for, so that closed formulas count bytes. The free memory of the
    machine makes no difference.
    """
    pruning = {} if options.get("schedule", "sar") != "sar" else {"prune": "none"}
    usual = {"hidden": 16, "layers": 3, "seed": 5, "halo": "rows"}
    return make_config({"graph": str(path), **usual, **pruning, **options}, CHOICES)


@functools.cache
def widest_row(decided):
    """The bytes of the widest row that a step exchanges."""
    return probe_step(decided, make_plugins)


def build_trainer(comm, config, map_name=None, rows=None, store=None):
    """A Trainer on a stored map, or on one rank alone for map_name None.

    rows: of a communication buffer (None: as configured). store(arena, local, source): see `load_local_graph`.
    """
    with GraphFile(config.data.graph) as file:
        decided = plan(config, file.meta)
        config, spec = decided.config, decided.spec
        if map_name is None:
            comm, cluster_to_rank = SoloCommunicator(), np.zeros(file.meta.num_clusters, np.int32)
        else:
            cluster_to_rank, _ = file.cluster_map(map_name, comm.size)
        row = widest_row(decided)
        buffers = HaloBuffers(int(config.schedule.halo_buffer * 2**20) if rows is None else 4 * rows * row)
        local = load_local_graph(
            file,
            cluster_to_rank,
            comm,
            buffers.cap(row),
            config.data.self_loops,
            spec.dtype,
            decided.reads_edges,
            inputs=inputs_of(spec.inputs),
            task_edges=TASKS[config.task.task].task_edges(config),
            edge_features=spec.edge_features > 0,
            store=lambda local, source: store and store(buffers.arena, local, source),
            feature_type=spec.held,
            clusters=decided.entry.reads_clusters,
            reads_on=decided.task.reads_on,
        )
    return Trainer(local, decided, comm, buffers, make_plugins)


def traffic_of(trainer, epoch):
    """What this rank sends and receives in a step, by kind. Collective."""
    trainer.comm.ledger.take()
    trainer.step(epoch)
    return trainer.comm.ledger.take()


def plugin_of(trainer, kind):
    """The plugin of a class, or None."""
    return next((each for each in trainer.plugins if isinstance(each, kind)), None)


def curve(comm, config, map_name, rows, epochs=20):
    """The losses of the first epochs."""
    trainer = build_trainer(comm, config, map_name, rows)
    losses = [trainer.step(epoch) for epoch in range(epochs)]
    assert trainer.buffers.nbytes <= trainer.buffers.limit
    return np.array(losses)


def outputs_and_gradients(trainer, graph):
    """(the model's own outputs, this rank's share of the loss, copies of its parameters that want gradients), with the
    summed gradients in the parameters. Collective.
    """
    mine = trainer.model(graph)
    share = trainer.objective.local_loss(mine.view_as(mine))  # which stay as they are
    share.backward()
    trainer.schedule.sync.reduce(trainer.gradients.flat)
    copies = {name: each.detach().clone().requires_grad_() for name, each in trainer.model.named_parameters()}
    return mine, share, copies


def trained(comm, config, store=None):
    """(losses, metrics, parameters, the Trainer) after some steps."""
    trainer = build_trainer(comm, config, "metis", store=store)
    losses = []
    for stage in range(len(trainer.stages)):
        trainer.begin_stage(stage, 2 * stage)
        losses += [trainer.step(2 * stage + step) for step in range(2)]
    return losses, repr(trainer.evaluate()), [p.detach().clone() for p in trainer.model.parameters()], trainer
