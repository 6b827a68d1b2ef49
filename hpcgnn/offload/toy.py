"""A training step on a graph of 256 nodes in this process alone.

It finds mistakes in a model before the real graph is read. It also gives the width of the exchanged rows, which decides
how the halo is cut into rounds. And with it, the memory baseline includes the needs of every process.
"""

import logging
from collections.abc import Callable

import numpy as np
import torch

from hpcgnn.comm import SoloCommunicator
from hpcgnn.engine.trainer import Trainer
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.graph.edge_features import carrying
from hpcgnn.graph.local import LocalGraph, build_adjacency
from hpcgnn.graph.sparse_rows import SparseRows, sparse_rows
from hpcgnn.graphfile.given_links import HELD
from hpcgnn.graphfile.schema import Edges
from hpcgnn.nn.model import REMAKING
from hpcgnn.nn.spec import ModelSpec
from hpcgnn.ops.remade_twice import twice_bytes
from hpcgnn.placement.order import LocalOrder, find_ends
from hpcgnn.placement.ownership import Ownership
from hpcgnn.plan.run_plan import RunPlan
from hpcgnn.plugins.registry import make_plugins
from hpcgnn.tasks.registry import TASKS
from hpcgnn.terminal import logged_from

NODES = 256


def toy_graph(spec: ModelSpec, task: str) -> LocalGraph:
    """A ring of 256 nodes with the widths and kinds of `spec` and labels for a task, owned by one rank."""
    indptr = np.arange(0, 2 * NODES + 1, 2)
    around = np.stack([np.arange(NODES) - 1, np.arange(NODES) + 1], 1) % NODES
    ownership = Ownership(np.array([0, NODES]), np.zeros(1, np.int32), 1)
    kinds = None
    if spec.edge_types:  # both directions of an edge have the same one
        pairs = np.stack([(np.arange(NODES) - 1) % NODES, np.arange(NODES)], 1)
        kinds = (pairs.reshape(-1) % spec.edge_types).astype(np.int32)
    weight = np.ones(2 * NODES, np.float32) if spec.weighted else None
    found = find_ends(Edges(indptr, around.reshape(-1).astype(np.int32), weight, kinds), ownership)
    loops = "add" if spec.loop_relation else "keep"
    edges = build_adjacency(found, LocalOrder(), SoloCommunicator(), 1, loops, spec.dtype, True, spec.edge_types)
    if spec.edge_features:
        edges = carrying(edges, torch.ones(edges.num_edges, spec.edge_features, dtype=spec.dtype))
    features: torch.Tensor | SparseRows
    if spec.sparse_input:
        features = sparse_rows(
            np.arange(NODES + 1),
            (np.arange(NODES) % spec.d_in).astype(np.int32),
            np.ones(NODES, np.float32),
            spec.d_in,
            spec.dtype,
        )
    else:
        features = torch.ones(NODES, spec.d_in - spec.changing, dtype=spec.dtype)
    return LocalGraph(
        inward=edges,
        outward=edges,
        features=features,
        labels=TASKS[task].blank(NODES, spec.classes),
        split=torch.ones(NODES, dtype=torch.uint8),
        original_id=torch.arange(NODES),
        num_nodes=NODES,
        num_classes=spec.classes,
        task=task,
        held=dict.fromkeys(HELD, edges) if TASKS[task].traits.splits_edges else {},
        node_type=(torch.arange(NODES) % spec.node_types).int() if spec.node_types else None,
    )


def toy_step(plan: RunPlan, prepare: Callable[[Trainer], None] = lambda trainer: None) -> int:
    """Run one step and one evaluation of every stage. Returns the bytes of the widest row that its streams declare, as
    HaloBuffers counts them (`widest_row`). prepare: called with the trainer before each stage.
    """
    buffers = HaloBuffers(0)
    # One step of a round.
    plan = plan.changed(average_steps=1, average_seconds=0.0, correct_every=0)
    with logged_from(logging.WARNING):
        trainer = Trainer(toy_graph(plan.spec, plan.config.task.task), plan, SoloCommunicator(), buffers, make_plugins)
        for stage in range(len(trainer.stages)):
            trainer.begin_stage(stage, 0)
            prepare(trainer)
            trainer.step(0)
            trainer.evaluate()
    return buffers.widest_row


def largest_at_work(spec: ModelSpec, largest: int, count: int) -> int:
    """Bytes per node of each of `count` matrices that a layer at work has. largest: the largest that the toy keeps."""
    if spec.keep == "exact":
        return -(-largest // NODES)
    blocks = twice_bytes(spec.widths[min(3, spec.layers)], spec.dtype) if spec.keep in REMAKING else 0
    return max(-(-largest // NODES) * spec.dtype.itemsize, -(-blocks // count))
