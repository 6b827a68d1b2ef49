"""How every command starts on a graph: compare ranks, open the file, choose the map, plan, probe, load the share."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpcgnn.app.agreement import agree, facts_of_graph, facts_of_process
from hpcgnn.app.choosing_maps import MADE_MAPS, choose_map
from hpcgnn.comm.communicator import Communicator
from hpcgnn.comm.session import Session
from hpcgnn.config import Config
from hpcgnn.engine.clock import Watch, unwatched
from hpcgnn.engine.memory_policy import MemoryPolicy, memory_policy
from hpcgnn.engine.probe import StepProbe
from hpcgnn.errors import ConfigError
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.graph.load import load_local_graph, open_graph
from hpcgnn.graph.local import LocalGraph
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.memory.resident import use_threads
from hpcgnn.options.inputs import inputs_of
from hpcgnn.plan.run_plan import RunPlan, plan, rows_in_place_pay
from hpcgnn.plugins.registry import make_plugins
from hpcgnn.tasks.registry import TASKS, task_traits


@dataclass(frozen=True)
class OpenGraph:
    """An open graph file and the map that a command uses. clusters: int32 (K,), the rank of each cluster."""

    file: GraphFile
    map_name: str
    clusters: np.ndarray


@contextlib.contextmanager
def opened(
    config: Config,
    comm: Communicator,
    labelled: bool = True,
    facts: dict[str, Any] | None = None,
    adapt: Callable[[GraphFile], Config] | None = None,
) -> Iterator[tuple[Config, OpenGraph]]:
    """Yield the configuration and the open graph. Collective.

    Args:
        config: the configuration.
        comm: the communicator.
        labelled: the graph must have labels.
        facts: facts that ranks must agree on, in addition to the options, the code and the packages.
        adapt: makes the configuration fit the opened file, before the map is chosen.

    Raises:
        ConfigError, GraphError, FormatError: on all ranks together.
    """
    agree(comm, facts_of_process(config, comm) | (facts or {}))
    with open_graph(config.data.graph, comm, labelled=labelled) as file:
        config = config if adapt is None else adapt(file)
        yield config, OpenGraph(file, *choose_map(file, config, comm))


@dataclass(frozen=True)
class BringUp:
    """A rank that is ready to load its share.

    Attributes:
        plan: the run's decisions; its configuration has the map and the threads as well.
        memory: decides where its data lie.
        buffers: the rank's communication buffers.
        learns: whether the run trains a model.
    """

    session: Session
    graph: OpenGraph
    plan: RunPlan
    memory: MemoryPolicy
    buffers: HaloBuffers
    learns: bool

    def load(self, watch: Watch = unwatched, labelled: bool | None = None) -> LocalGraph:
        """This rank's share. Collective. labelled: whether labels are read; None: as the task needs them."""
        decided, spec, buffers, comm = self.plan, self.plan.spec, self.buffers, self.session.comm
        ranks = comm.size // decided.config.data.replicas
        return load_local_graph(
            self.graph.file,
            self.graph.clusters + comm.rank // ranks * ranks,  # the ranks of the own replica
            comm,
            cap=max(1, buffers.cap(buffers.widest_row)),
            self_loops=decided.config.data.self_loops,
            dtype=spec.dtype,
            keep_edges=decided.reads_edges,
            watch=watch,
            inputs=inputs_of(spec.inputs),
            labelled=decided.task.labels if labelled is None else labelled,
            task_edges=TASKS[decided.config.task.task].task_edges(decided.config),
            edge_features=spec.edge_features > 0,
            feature_type=spec.held,
            store=self.memory.features,
            clusters=self.learns and decided.entry.reads_clusters,
            reads_on=decided.task.reads_on,
        )

    def plan_on(self, local: LocalGraph) -> RunPlan:
        """The plan for a loaded share: --intra-node auto is messages where memory may not be shared, and shared on one
        node. Collective.
        """
        decided, node = self.plan, self.session.comm.node_memory()
        shares = decided.may_read_in_place and self.memory.reads_in_place(local)
        one_node = node is not None and len(node.ranks) == self.session.comm.size
        return decided.deciding(shares) if one_node or not shares else decided


@contextlib.contextmanager
def bring_up(
    config: Config,
    session: Session,
    learns: bool = True,
    labelled: bool | None = None,
    adapt: Callable[[GraphFile], Config] | None = None,
    row_bytes: Callable[[RunPlan], int] = lambda decided: 0,
) -> Iterator[BringUp]:
    """Open the graph file, and prepare a rank for loading its share of the graph. Collective.

    Args:
        config: the configuration.
        session: the session with its communicator.
        learns: whether the run trains a model.
        labelled: whether the graph must have labels; None: if the task needs them.
        adapt: see `opened`.
        row_bytes: plan -> bytes of the widest exchanged row outside of the model.

    Raises:
        HpcgnnError: on all ranks together, before anything large is read.
    """
    comm = session.comm
    use_threads(session.threads)
    needs_labels = task_traits(config.task.task).labels if labelled is None else labelled
    with opened(config, comm, needs_labels, adapt=adapt) as (config, graph):
        with comm.together("planning the run"):
            decided = plan(config, graph.file.meta, learns)
        if config.schedule.intra_node == "auto" and not _may_read_in_place(decided, comm):
            decided = decided.deciding(False)
        name = config.data.partition if graph.map_name in MADE_MAPS else graph.map_name
        decided = decided.changed(partition=name, threads=session.threads)
        agree(comm, facts_of_graph(graph.file.meta, graph.map_name, graph.clusters))
        with comm.together("trying the model on a small graph"):
            probe = StepProbe.of(decided, make_plugins)
        buffers = make_buffers(max(probe.row_bytes, row_bytes(decided)), decided.config)
        with comm.together("looking at the memory of the node"):
            memory = memory_policy(decided, session, buffers, probe, learns)
        yield BringUp(session, graph, decided, memory, buffers, learns)


def _may_read_in_place(decided: RunPlan, comm: Communicator) -> bool:
    """Whether it can pay that ranks of a node read each other's rows in place. Collective."""
    memory = comm.node_memory()
    if memory is None:
        return False
    pays = rows_in_place_pay(max(comm.allgather_object(len(memory.ranks))), comm.size)
    return decided.may_read_in_place and pays and _maps_memory(comm)


def _maps_memory(comm: Communicator) -> bool:
    """Return whether the ranks of every node can map each other's memory. Collective."""
    memory, able = comm.node_memory(), True
    try:
        if memory is not None:
            memory.allocate(1)
    except ConfigError:
        able = False
    return all(comm.allgather_object(able))


def make_buffers(row_bytes: int, config: Config) -> HaloBuffers:
    """The communication buffers of a rank, for rows of at most this size. Raises ConfigError, on all ranks, if none
    fits.
    """
    buffers = HaloBuffers(int(config.schedule.halo_buffer * 2**20))
    buffers.declare(max(1, row_bytes))
    if buffers.cap(buffers.widest_row) < 1:
        raise ConfigError.on_all(
            f"--halo-buffer {config.schedule.halo_buffer} MiB is too small for one row: expected at least "
            f"{3 * row_bytes / 2**20:.6f} MiB, three buffers of one row of {row_bytes} bytes"
        )
    return buffers
