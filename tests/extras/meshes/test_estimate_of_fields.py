"""An estimate of fields and a job: bytes, messages, kept tensors and snapshots in memory, as a run has them."""

import graphs
import numpy as np
import pytest
import torch
from mpi.training import build_trainer, configure

from extras.estimate.test_estimated import check
from hpcgnn.engine.memory_policy import SavedTensors
from hpcgnn.engine.probe import KeptBytes, StepProbe
from hpcgnn.errors import ConfigError
from hpcgnn.extras.estimate.forecast import CountedGraph
from hpcgnn.extras.meshes.task import Fields
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.plugins.registry import make_plugins

from . import made

pytestmark = pytest.mark.ranks(1, 2)

USUAL = {"task": "fields", "hidden": 8, "layers": 4, "dropout": 0.0, "input_fields": "velocity"}
CASES = {
    "every layer": {"model": "meshgraphnet"},
    "some layers": {"model": "meshgraphnet", "kept_states": 1, "snapshots_per_step": 2},
    "encoded": {"model": "meshgraphnet", "edge_states": "encoded", "rollout": 2, "precision": "fp64"},
    "sage": {"model": "sage", "target_fields": "p.total", "history": 2},
}


@pytest.fixture(scope="module")
def path(comm, session_path):
    found = session_path / f"estimated-fields-{comm.size}.h5"
    if comm.rank == 0:
        n = graphs.random_directed().num_nodes
        position = np.random.default_rng(2).random((n, 3)).astype(np.float32)
        split = np.array([1, 1, 1, 3, 2, 2], np.uint8)
        made.write(found, comm.size, position=position, split_of_times=split)
    comm.barrier()
    return found


@pytest.mark.parametrize("name", CASES)
def test_bytes_of_a_run(comm, path, name):
    """`check` has the messages of an epoch and of an evaluation. The snapshots that these leave in memory, and the rows
    that a step keeps for its gradient, are those of the estimate, to the byte.
    """
    config = configure(path, **USUAL, **CASES[name])
    forecast, trainer = check(comm, config, "random")
    with GraphFile(path) as file:
        probe, work = (
            StepProbe.of(trainer.plan, make_plugins),
            Fields().work(trainer.plan.config, trainer.plan.spec, file),
        )
    local, counter = trainer.local, KeptBytes()
    held = sum(each.nbytes for frame in trainer.evaluator.rows() for each in frame.values())
    assert held == work.held(local.num_owned) > 0
    trainer.buffers.arena.keeper = counter
    trainer.plugins.append(SavedTensors(trainer))
    steps = trainer.objective.steps(trainer.schedule.sync.steps(2, trainer.stage, trainer.training_graph, []))
    trainer.local_loss(next(steps), 2).backward()
    counts = forecast.shares.nodes[comm.rank], forecast.shares.edges[comm.rank]
    assert counts == (local.num_owned, local.inward.num_edges)
    found = sum(size for size, shape in counter.sizes.values() if {*shape} & {*counts})
    assert found == probe.kept(*counts), (found, probe)


def test_rows_rounded_at_random(comm, path):
    """A layer that runs again rounds its halo as before: the gradients are those of all states, bit by bit."""
    found = []
    for kept in (0, 1):
        config = configure(path, **USUAL, model="meshgraphnet", kept_states=kept, halo_dtype="int8")
        trainer = build_trainer(comm, config, "random")
        steps = trainer.objective.steps(trainer.schedule.sync.steps(2, trainer.stage, trainer.training_graph, []))
        trainer.local_loss(next(steps), 2).backward()
        found.append({name: p.grad.clone() for name, p in trainer.model.named_parameters()})
    assert all(torch.equal(g, found[1][name]) for name, g in found[0].items())


def test_replicas_are_not_counted(path):
    with GraphFile(path) as file, pytest.raises(ConfigError, match="expected --replicas 1"):
        config = configure(path, **USUAL, **CASES["sage"], replicas=2, snapshots_per_step=2)
        CountedGraph(file).forecast(config, 2)
