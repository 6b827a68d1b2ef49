"""Lines of the log about a run that begins: its graph, its map, its messages, the cores of its ranks, and
options without effect."""

import logging
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from hpcgnn.app.bring_up import BringUp
from hpcgnn.comm.communicator import Communicator
from hpcgnn.comm.launcher import job_end_time
from hpcgnn.config import Config
from hpcgnn.cores import Binding, domains_of
from hpcgnn.engine.trainer import Trainer
from hpcgnn.graphfile.labels import REGRESSION
from hpcgnn.graphfile.schema import GraphMeta
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.listing import every
from hpcgnn.nn.registry import ignored
from hpcgnn.options.inputs import inputs_of
from hpcgnn.plan.run_plan import RunPlan
from hpcgnn.tasks.registry import TASKS

log = logging.getLogger("hpcgnn")
IMBALANCE_WARNING = 1.05
CROWDED = (
    "ranks share cores, so times say little: start fewer ranks per node, lower --threads, or bind ranks (srun "
    "--cpu-bind=cores)"
)


def log_options(config: Config, notes: Iterable[str], warnings: Iterable[str]) -> None:
    """Log notes and warnings about options. Rank 0."""
    for note in notes:
        log.info("%s", note)
    for warning in warnings:
        log.warning("%s", warning)
    if config.run.stop_before and job_end_time() is None:
        log.warning("without effect: --stop-before (the batch system does not say when this job ends)")


def log_graph(path: str | Path, meta: GraphMeta, outputs: str, map_name: str, ranks: int) -> None:
    """Log the graph and its map. outputs: the number of the model's outputs, and their noun."""
    log.info(
        "graph %s: %s nodes, %s edges, %d features, %s; map %r for %d ranks, %d threads each",
        path,
        f"{meta.num_nodes:,}",
        f"{meta.num_edges:,}",
        meta.num_features,
        outputs,
        map_name,
        ranks,
        torch.get_num_threads(),
    )


def log_start(ready: BringUp) -> None:
    """Log the graph and the places of the ranks. Collective."""
    file, comm = ready.graph.file, ready.session.comm
    outputs = f"{ready.plan.spec.classes} {TASKS[ready.plan.config.task.task].outputs}"
    log_graph(file.path, file.meta, outputs, ready.graph.map_name, comm.size)
    places, warnings = describe_affinity(comm, ready.session.threads)
    for place in places:
        log.info("%s", place)
    for warning in warnings:
        log.warning("%s", warning)


def log_trainer(trainer: Trainer, quality: dict[str, Any]) -> None:
    """Log the model, its messages, and the nodes that training sees. Collective.

    Args:
        trainer: the trainer.
        quality: the facts of `partition_quality`.
    """
    local, comm, model = trainer.local, trainer.comm, trainer.model
    if quality["imbalance_nodes"] > IMBALANCE_WARNING:
        log.warning(
            "the map is out of balance: the largest rank has %.2f times the mean of nodes (expected at most %.2f); "
            "partition the graph into more clusters",
            quality["imbalance_nodes"],
            IMBALANCE_WARNING,
        )
    if (counts := trainer.views.crossing) is not None:
        log.info(
            "--intra-node auto: %s; in an exchange %s rows of ranks would cross between nodes, and %s of whole nodes",
            "shared" if counts.saved else "messages",
            f"{counts.of_ranks:,}",
            f"{counts.of_nodes:,}",
        )
    log.info(
        "%s: %s parameters; halo %s rows in %d rounds; run directory %s",
        trainer.plan.config.model.model,
        f"{sum(p.numel() for p in model.parameters()):,}",
        f"{quality['halo_rows_total']:,}",
        len(local.inward.plan.rounds),
        trainer.plan.config.run.run_dir,
    )
    if trainer.views.subgraph is not None:
        edges = comm.total(torch.tensor([trainer.views.subgraph.inward.num_edges]), "plan").item()
        seen = trainer.views.subgraph.num_nodes, local.num_nodes, edges
        log.info("inductive: training sees %s of %s nodes, and %s edges", *map("{:,}".format, seen))


def remarks_on_graph(plan: RunPlan, file: GraphFile) -> list[str]:
    """Return lines about options without effect on this graph, and about data that the model ignores."""
    config, spec, meta = plan.config, plan.spec, file.meta
    lines = ignored(spec, meta.num_edge_features)
    if config.task.target_scale != "standard" and config.task.task != REGRESSION:
        lines.append(f"without effect: --target-scale (the task of the graph is {config.task.task})")
    inputs = inputs_of(spec.inputs)
    if not inputs.file and meta.num_features:
        lines.append(f"the {meta.num_features} features of the graph are ignored by --features {config.task.features}")
    return lines + TASKS[config.task.task].remarks(config, file)


def describe_affinity(comm: Communicator, threads: int) -> tuple[list[str], list[str]]:
    """Describe the cores of all ranks. Collective.

    Args:
        comm: the communicator.
        threads: number of threads of each rank.

    Returns:
        On rank 0, (lines, warnings); two empty lists on the others. There is a line per host, such as 'n1: rank 0 on
            cores 0-23, rank 1 on cores 24-47', and one for ranks of several NUMA domains. Warnings name hosts with more
            threads than cores.
    """
    binding = Binding.of_this_rank()
    said = comm.allgather_object((socket.gethostname(), binding, domains_of(binding.cores)))
    if comm.rank != 0:
        return [], []
    hosts: dict[str, dict[Binding, list[int]]] = {}
    spans: dict[str, list[int]] = {}
    for rank, (host, theirs, spanned) in enumerate(said):
        hosts.setdefault(host, {}).setdefault(Binding(*theirs), []).append(rank)
        if len(spanned) > 1:
            spans.setdefault(every(spanned), []).append(rank)
    lines = [f"{host}: {_on_cores(places)}" for host, places in hosts.items()]
    lines += [
        f"rank {every(ranks)} on cores of NUMA domains {domains}: a rank for each domain would read near memory only"
        for domains, ranks in spans.items()
    ]
    return lines, [*_bound_together(hosts), *([CROWDED] if _crowded(hosts, threads) else [])]


def _on_cores(places: dict[Binding, list[int]]) -> str:
    of_cores: dict[frozenset[int], list[int]] = {}
    for binding, ranks in places.items():
        of_cores.setdefault(binding.cores, []).extend(ranks)
    return ", ".join(f"rank {every(sorted(ranks))} on cores {every(sorted(own))}" for own, ranks in of_cores.items())


def _bound_together(hosts: dict[str, dict[Binding, list[int]]]) -> list[str]:
    """A line for each host and set of cores to which OpenMP has bound the main threads of several ranks."""
    together: dict[tuple[str, frozenset[int]], list[int]] = {}
    for host, places in hosts.items():
        for binding, ranks in places.items():
            if binding.by_openmp:
                together.setdefault((host, binding.main), []).extend(ranks)
    return [
        f"{host}: OpenMP binds the main threads of rank {every(sorted(ranks))} to core {every(sorted(main))}: let the "
        "launcher bind ranks (srun --cpu-bind=cores, mpiexec -bind-to core), or unset OMP_PROC_BIND and OMP_PLACES"
        for (host, main), ranks in together.items()
        if len(ranks) > 1
    ]


def _crowded(hosts: dict[str, dict[Binding, list[int]]], threads: int) -> bool:
    for places in hosts.values():
        near = [binding for binding, ranks in places.items() for _ in ranks]
        if any(binding.crowding(threads, near) > 1 for binding in places):
            return True
    return False
