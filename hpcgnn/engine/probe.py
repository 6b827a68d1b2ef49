"""A probe: a training step on a graph of 251 nodes in this process alone.

It finds mistakes in a model before the real graph is read. It also gives the width of the exchanged rows, which decides
how the halo is cut into rounds. And with it, the memory baseline includes the needs of every process.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch

from hpcgnn.comm.communicator import SoloCommunicator
from hpcgnn.engine.hooks import Plugins
from hpcgnn.engine.memory_policy import SavedTensors
from hpcgnn.engine.trainer import Trainer
from hpcgnn.engine.views import layers_to_prune
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.graph.local import Adjacency, LocalGraph, build_adjacency
from hpcgnn.graph.sparse_rows import SparseRows, sparse_rows
from hpcgnn.graphfile.schema import Edges
from hpcgnn.memory.arena import SavedTensor, SavedTensorPool
from hpcgnn.nn.spec import ModelSpec
from hpcgnn.placement.order import LocalOrder, find_ends
from hpcgnn.placement.ownership import Ownership
from hpcgnn.plan.run_plan import RunPlan
from hpcgnn.tasks.registry import TASKS
from hpcgnn.terminal import logged_from

#: A number, or one of each rank.
Count = TypeVar("Count", int, np.ndarray)
#: make_plugins(trainer, learns), as of a Trainer.
MakePlugins = Callable[[Trainer, bool], Plugins]
# A prime number, which divides no weights: tensors of so many bytes, or of a multiple, have rows of nodes or edges.
NODES = 251
# Bytes of a rank outside of the arena, without the optimizer's state and the best parameters so far.
_BESIDE = 24 << 20
# Number of the largest saved tensors that are in memory at a time in any case: the input, the output, and one in
# transfer.
_AT_WORK = 3


def small_graph(spec: ModelSpec, task: str) -> LocalGraph:
    """A ring of 251 nodes with the widths and kinds of `spec` and labels for a task, owned by one rank."""
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
    return made_up(spec, task, edges, edges, 1.0)


def made_up(spec: ModelSpec, task: str, inward: Adjacency, outward: Adjacency, entries: float) -> LocalGraph:
    """The LocalGraph of a rank with these edges, whose nodes have features of ones, and train.

    Args:
        spec: with the widths and kinds.
        task: of the labels.
        inward, outward: the same one for an undirected graph.
        entries: features of a node, if they are sparse.
    """
    n, directed = inward.own.num_rows, outward is not inward
    if spec.edge_features:
        inward = inward.carrying(torch.ones(inward.num_edges, spec.edge_features, dtype=spec.dtype))
    features: torch.Tensor | SparseRows
    if spec.sparse_input:
        indptr = np.round(np.arange(n + 1) * entries).astype(np.int64)
        columns = (np.arange(indptr[-1]) % spec.d_in).astype(np.int32)
        features = sparse_rows(indptr, columns, np.ones(len(columns), np.float32), spec.d_in, spec.dtype)
    else:
        features = torch.ones(n, spec.d_in - spec.changing, dtype=spec.dtype)
    return LocalGraph(
        inward=inward,
        outward=outward if directed else inward,
        features=features,
        labels=TASKS[task].blank(n, spec.classes),
        split=torch.ones(n, dtype=torch.uint8),
        original_id=torch.arange(n),
        num_nodes=n,
        num_classes=spec.classes,
        task=TASKS[task].labels or task,
        node_type=(torch.arange(n) % spec.node_types).int() if spec.node_types else None,
        position=torch.rand(n, spec.dimensions) if spec.dimensions else None,
    )


def probe_step(
    plan: RunPlan, make_plugins: MakePlugins, prepare: Callable[[Trainer], None] = lambda trainer: None
) -> int:
    """Run one step and one evaluation of every stage. Returns the bytes of the widest row that its streams declare, as
    HaloBuffers counts them (`widest_row`). make_plugins: as of a Trainer. prepare: called with the trainer before each
    stage.
    """
    buffers = HaloBuffers(0)
    # One step of a round.
    plan = plan.changed(average_steps=1, correct_every=0)
    with logged_from(logging.WARNING):
        graph = small_graph(plan.spec, plan.config.task.task)
        trainer = Trainer(graph, plan, SoloCommunicator(), buffers, make_plugins)
        for stage in range(len(trainer.stages)):
            trainer.begin_stage(stage, 0)
            prepare(trainer)
            trainer.step(0)
            trainer.evaluate()
    return buffers.widest_row


class KeptBytes(SavedTensorPool):
    """Counts saved tensors, and leaves them unchanged. sizes: {address: (bytes, shape)}."""

    def __init__(self) -> None:
        self.sizes: dict[int, tuple[int, torch.Size]] = {}
        self._alive: list[SavedTensor] = []

    def keep(self, tensor: torch.Tensor) -> SavedTensor:
        kept = SavedTensor(tensor)
        storage = tensor.untyped_storage()
        self.sizes[storage.data_ptr()] = storage.nbytes(), tensor.shape
        self._alive.append(kept)  # so that no other tensor lies where it did
        return kept

    def let_go(self) -> None:
        """Keep nothing any more. Tensors that know of their gradient hold it, and it them, by ways that Python's
        collector of garbage does not see.
        """
        self._alive.clear()


@dataclass(frozen=True)
class StepProbe:
    """The results of a step on a small graph.

    Attributes:
        per_node, per_edge: bytes that a step saves, in rows of nodes and of in-edges.
        largest: bytes per node of the largest saved tensor.
        beside: bytes of a rank that depend on no node, without parameters and gradients.
        parameters: bytes of the parameters, and as many again for their gradients.
        row_bytes: see `probe_step`.
        pruning: see `layers_to_prune`.
    """

    per_node: int
    per_edge: int
    largest: int
    beside: int
    parameters: int
    row_bytes: int
    pruning: tuple[list[float], int]

    def kept(self, nodes: Count, edges: Count) -> Count:
        """Bytes that a step saves for its gradient. nodes, edges: own nodes, and their in-edges."""
        return self.per_node * nodes + self.per_edge * edges

    def peak_working_set(self, nodes: int) -> int:
        """Bytes of a layer at work. nodes: of this rank."""
        return _AT_WORK * self.largest * nodes

    @classmethod
    def of(cls, plan: RunPlan, make_plugins: MakePlugins) -> "StepProbe":
        """By a step of every stage."""
        counters: list[KeptBytes] = []
        models: list[Any] = []
        edges = 1

        def count(trainer: Trainer) -> None:
            nonlocal edges
            counters.append(KeptBytes())
            edges = trainer.local.inward.num_edges
            models.append(trainer.model)
            trainer.buffers.arena.keeper = counters[-1]
            trainer.plugins.append(SavedTensors(trainer))

        row_bytes = probe_step(plan, make_plugins, count)
        for counter in counters:
            counter.let_go()
        # Of stages that follow each other, the one that keeps most.
        kept = ([each for each in counter.sizes.values() if each[0] % NODES == 0] for counter in counters)
        sizes = max(kept, key=lambda each: sum(size for size, _ in each), default=[])
        of_edges = sum(size for size, shape in sizes if edges in shape)
        most = max((size for size, _ in sizes), default=0)
        parameters, exact = sum(p.nbytes for p in models[0].parameters()), plan.config.model.keep == "exact"
        return cls(
            per_node=(sum(size for size, _ in sizes) - of_edges) // NODES,
            per_edge=of_edges // edges,
            largest=most // NODES * (1 if exact else plan.spec.dtype.itemsize),
            beside=_BESIDE + 3 * parameters,
            parameters=parameters,
            row_bytes=row_bytes,
            pruning=layers_to_prune(models[0]),
        )
