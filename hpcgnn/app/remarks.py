"""Lines of the log about a run that begins: its graph, its map, its messages, the cores of its ranks, and
options without effect."""

import logging
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from hpcgnn import cores
from hpcgnn.app.bring_up import BringUp
from hpcgnn.comm.launcher import job_end_time
from hpcgnn.comm.session import Session
from hpcgnn.config import Config
from hpcgnn.engine.trainer import Trainer
from hpcgnn.graphfile.label_files import REGRESSION
from hpcgnn.graphfile.schema import GraphMeta
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.nn.registry import ignored
from hpcgnn.options.inputs import inputs_of
from hpcgnn.plan.run_plan import RunPlan
from hpcgnn.tasks.registry import TASKS
from hpcgnn.word_list import every

log = logging.getLogger("hpcgnn")
IMBALANCE_WARNING = 1.05
CROWDED = (
    "ranks share cores, so times say little: start fewer ranks per node, lower --threads, or let the launcher bind "
    "ranks (srun --cpu-bind=cores, mpiexec -bind-to core), and not OpenMP (OMP_PROC_BIND, OMP_PLACES)"
)


def log_options(config: Config, notes: Iterable[str], warnings: Iterable[str]) -> None:
    """Log notes and warnings about options. Rank 0."""
    _log(notes, warnings)
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
    _log(*describe_affinity(ready.session))


def _log(notes: Iterable[str], warnings: Iterable[str]) -> None:
    for note in notes:
        log.info("%s", note)
    for warning in warnings:
        log.warning("%s", warning)


def log_trainer(trainer: Trainer, quality: dict[str, Any]) -> None:
    """Log the model and its messages.

    Args:
        trainer: the trainer.
        quality: the facts of `partition_quality`.
    """
    local, model = trainer.local, trainer.model
    if quality["imbalance_nodes"] > IMBALANCE_WARNING:
        log.warning(
            "the map is out of balance: the largest rank has %.2f times the mean of nodes (expected at most %.2f); "
            "partition the graph into more clusters",
            quality["imbalance_nodes"],
            IMBALANCE_WARNING,
        )
    log.info(
        "%s: %s parameters; halo %s rows in %d rounds%s; run directory %s",
        trainer.plan.config.model.model,
        f"{sum(p.numel() for p in model.parameters()):,}",
        f"{quality['halo_rows_total']:,}",
        len(local.inward.plan.rounds),
        ", rows of one node in shared memory" if trainer.plan.in_place else "",
        trainer.plan.config.run.run_dir,
    )


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


def describe_affinity(session: Session) -> tuple[list[str], list[str]]:
    """(lines, warnings) about the cores of all ranks, on rank 0; none on the others. Collective.

    There is a line per host, such as 'n1: rank 0 on cores 0-23, rank 1 on cores 24-47', and a warning where ranks share
    cores.
    """
    hosts: dict[str, dict[frozenset[int], list[int]]] = {}
    said = session.comm.gather_object((socket.gethostname(), cores.usable(), session.crowding)) or []
    for rank, (host, own, _) in enumerate(said):
        hosts.setdefault(host, {}).setdefault(own, []).append(rank)
    lines = [
        f"{host}: " + ", ".join(f"rank {every(ranks)} on cores {every(sorted(own))}" for own, ranks in places.items())
        for host, places in hosts.items()
    ]
    return lines, [CROWDED] if any(crowding > 1 for _, _, crowding in said) else []
