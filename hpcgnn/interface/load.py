"""`hpcgnn.load`: a script on any number of ranks gets its share of a graph.

It runs the start of a job as well: the session, the check of the options, the choice of the map, the comparison of
ranks, and the reading of the share. The model is unknown at this point. So the width of the rows that its layers
exchange is an option, `widest`. A job measures it on a small graph.
"""

from pathlib import Path
from typing import Any

import torch

from hpcgnn.app.agreement import agree, facts_of_graph
from hpcgnn.app.bring_up import opened
from hpcgnn.app.remarks import log_graph
from hpcgnn.comm.communicator import Communicator
from hpcgnn.comm.script import end_like_a_job, session_of_script
from hpcgnn.config import Config, make_config
from hpcgnn.engine.rundir import start_logging
from hpcgnn.errors import ConfigError, FormatError
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.graph.load import load_local_graph
from hpcgnn.graph.local import LocalGraph
from hpcgnn.graphfile.schema import GraphMeta
from hpcgnn.interface.loaded_graph import LoadedGraph, TrainingGraph
from hpcgnn.memory.resident import set_allocator_policy, trim_heap, use_threads
from hpcgnn.options.inputs import inputs_of
from hpcgnn.plan.choices import registry_choices
from hpcgnn.plan.model_spec import DTYPES, check_features
from hpcgnn.tasks.registry import TASKS

WIDEST = 512


def load(  # noqa: PLR0913 - callers name them
    path: str | Path,
    *,
    self_loops: str | None = None,
    features: str = "file",
    precision: str = "fp32",
    seed: int = 0,
    halo_buffer: float = 8.0,
    widest: int = WIDEST,
    edges: bool | None = None,
    partition: str = "",
    threads: int = 0,
    watchdog: float = 300.0,
    comm: Any = None,
) -> TrainingGraph:
    """Return this rank's share of a graph file, for a custom training loop. Collective.

    Under `mpiexec -n P python SCRIPT` all P ranks call it; plain `python SCRIPT` is one rank. The first call starts
    MPI. From then on an uncaught exception ends the job on all ranks, and the ranks wait for each other at the end of
    the script.

    Args:
        path: the graph file.
        self_loops: 'add' adds one to every node without, as `hpcgnn train` does for gcn, sgc, appnp, gat and gatv2.
            'keep' leaves the edges as they are. None leaves them too, and those layers refuse to guess.
        features: 'file', 'none' (a column of ones), 'degree' or 'file+degree', as in `hpcgnn train`.
        precision: fp32 or fp64, for features and parameters.
        seed: seed of initial parameters and dropout.
        halo_buffer: MiB for all communication buffers of the rank.
        widest: numbers in the widest row that layers exchange (heads × width, for transformers twice that), apart from
            the features.
        edges: keep weights, types and features of edges for layers that read them (None: if the file has any).
        partition, threads, watchdog: as in `hpcgnn train`.
        comm: an mpi4py communicator of a program that has started MPI itself, such as a solver's: its ranks share the
            graph, and the program handles exceptions and ends MPI. None: all ranks of the job.

    Raises:
        ConfigError, FormatError, GraphError: on all ranks together.
    """
    if comm is None:
        end_like_a_job()
    set_allocator_policy()
    config = make_config(
        {
            "graph": str(path),
            "self_loops": self_loops or "keep",
            "features": features,
            "precision": precision,
            "seed": seed,
            "halo_buffer": halo_buffer,
            "partition": partition,
            "threads": threads,
            "watchdog": watchdog,
        },
        registry_choices(),
        "hpcgnn.load",
    )
    if precision == "mixed" or self_loops == "auto":
        raise ConfigError("hpcgnn.load: expected precision 'fp32' or 'fp64', and self_loops 'add', 'keep' or none")
    if inputs_of(features).learned:
        raise ConfigError(
            f"hpcgnn.load: features {features!r} are learned, which `hpcgnn train` does; expected file, none, degree "
            "or edges"
        )
    if comm is not None:
        from hpcgnn.comm.start_mpi import communicator_of  # it needs mpi4py, and one process needs none

        count = config.run.threads or torch.get_num_threads()
        use_threads(count)
        return load_graph(communicator_of(comm, count), config, self_loops is not None, widest, edges)
    session = session_of_script(config.run.threads or None, config.run.watchdog)
    use_threads(session.threads)
    start_logging(session.comm.rank)
    return load_graph(session.comm, config, self_loops is not None, widest, edges)


def load_graph(
    comm: Communicator, config: Config, stated: bool = True, widest: int = WIDEST, edges: bool | None = None
) -> TrainingGraph:
    """`load` with a transport that is there. Collective. stated: whether the configuration's self loops are a choice of
    the user's.
    """
    buffers = BoundedBuffers(int(config.schedule.halo_buffer * 2**20))

    def read(self_loops: str) -> tuple[LocalGraph, GraphMeta, str]:
        with opened(config, comm, labelled=False, facts={"widest": widest, "edges": edges}) as (_, graph):
            meta = graph.file.meta
            agree(comm, facts_of_graph(meta, graph.map_name, graph.clusters))
            featured = meta.num_edge_features > 0
            keep = meta.weighted or meta.typed or featured if edges is None else edges
            dtype, inputs = DTYPES[config.run.precision], inputs_of(config.task.features)
            check_features(config, inputs, meta)
            width = (
                0 if meta.sparse_features and inputs.file else inputs.fixed(meta.num_features, meta.num_edge_features)
            )
            cap = _rows_of_a_round(buffers, widest, width, dtype)
            local = load_local_graph(
                *(graph.file, graph.clusters, comm, cap, self_loops, dtype, keep),
                inputs=inputs,
                labelled=meta.num_classes > 0,
                edge_features=keep and featured,
            )
            buffers.hold(local)
            return local, meta, graph.map_name

    local, meta, map_name = read(config.data.self_loops)
    trim_heap()

    def with_loops(self_loops: str) -> LocalGraph:
        other, found, _ = read(self_loops)
        if found.uuid != meta.uuid:
            raise FormatError.on_all(f"{config.data.graph} was replaced since it was loaded; start the job again")
        return other

    log_graph(config.data.graph, meta, f"{meta.num_classes} {TASKS[meta.task].outputs}", map_name, comm.size)
    return TrainingGraph(LoadedGraph(local, config, comm, buffers, meta, stated, with_loops))


class BoundedBuffers(HaloBuffers):
    """Communication buffers that say which option to change for a row that is wider than the rounds were cut for."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self._longest = 0

    def hold(self, local: LocalGraph) -> None:
        """These are the buffers of a LocalGraph."""
        plans = (local.inward.plan, local.outward.plan)
        self._longest = max(self._longest, *(plan.longest_round for plan in plans))

    def declare(self, row_bytes: int, return_bytes: int = 0, summed_bytes: int = 0, widened_bytes: int = 0) -> None:
        """See `HaloBuffers.declare`. Raises ConfigError, on all ranks: they declare alike."""
        super().declare(row_bytes, return_bytes, summed_bytes, widened_bytes)
        if self.cap(row_bytes, return_bytes, summed_bytes, widened_bytes, self._longest) >= self._longest:
            return
        raise ConfigError.on_all(
            f"a layer exchanges rows of {row_bytes} bytes (and {return_bytes} back), wider than the rounds of the halo "
            f"were cut for; say hpcgnn.load(…, widest={max(row_bytes, return_bytes) // 4}), or a halo_buffer of more "
            f"than {self.limit / 2**20:g} MiB"
        )


def _rows_of_a_round(buffers: HaloBuffers, widest: int, width: int, dtype: torch.dtype) -> int:
    """How many rows fit the buffers at the width that is foretold. width: of dense features, else 0. Raises
    ConfigError, on all ranks.
    """
    row, features = widest * dtype.itemsize, width * dtype.itemsize
    rows = min(buffers.cap(row, row), buffers.cap(max(1, features))) if widest > 0 else 0
    if rows < 1:
        raise ConfigError.on_all(
            f"halo_buffer={buffers.limit / 2**20:g} (MiB) is too small for one row: expected at least "
            f"{max(7 * row, 3 * features) / 2**20:.6f} MiB, for widest={widest} and {width} features"
        )
    return rows
