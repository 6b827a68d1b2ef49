"""`hpcgnn train` from the opened graph file to the closed run directory, in the order in which it happens."""

import contextlib
import logging
import time
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

import torch

from hpcgnn.app.affinity import describe_affinity
from hpcgnn.app.bring_up import BringUp, bring_up
from hpcgnn.app.edge_weights import check_weights
from hpcgnn.app.resuming import changes
from hpcgnn.app.splits import check_splits
from hpcgnn.comm.communicator import Communicator
from hpcgnn.comm.launch.launcher import job_end_time
from hpcgnn.comm.session import Session
from hpcgnn.config import Config
from hpcgnn.engine import rank_state
from hpcgnn.engine.checkpoint import (
    check_identity,
    check_stage,
    newest_readable,
    read_checkpoint,
    read_group,
    read_schedule_state,
    restore,
)
from hpcgnn.engine.clock import both, unwatched
from hpcgnn.engine.epochs import Progress, run_epochs
from hpcgnn.engine.matmul import bf16_instructions
from hpcgnn.engine.rundir import RunDir, start_logging
from hpcgnn.engine.stopping import EXIT_STOPPED, StopRequest
from hpcgnn.engine.summary import gather_rank_records, partition_quality, show_result, summarise
from hpcgnn.engine.trainer import Trainer
from hpcgnn.exchange.plan import HaloPlan
from hpcgnn.graph.local import LocalGraph
from hpcgnn.graphfile.labels import REGRESSION
from hpcgnn.graphfile.schema import GraphMeta
from hpcgnn.listing import in_turn
from hpcgnn.memory.available import huge_pages
from hpcgnn.memory.resident import file_bytes, resident_bytes, shared_bytes
from hpcgnn.nn.plugin import plugin_hash
from hpcgnn.nn.registry import ignored
from hpcgnn.nn.spec import ModelSpec
from hpcgnn.offload.activations import hold_within
from hpcgnn.options.inputs import inputs_of
from hpcgnn.plan.run_plan import RunPlan
from hpcgnn.plugins import learned_features
from hpcgnn.plugins.account import make_account
from hpcgnn.plugins.energy import Meter, find_energy
from hpcgnn.plugins.live_tensors import LiveTensors
from hpcgnn.plugins.memory_profile import MemoryProfile, PeakMemory, trim_heap
from hpcgnn.plugins.registry import make_plugins
from hpcgnn.plugins.trace import Tracer
from hpcgnn.plugins.watching import watchers_of
from hpcgnn.tasks.link_training import remarks_on_links
from hpcgnn.tasks.registry import TASKS

log = logging.getLogger("hpcgnn")
IMBALANCE_WARNING = 1.05


def train(config: Config, session: Session, remarks: Iterable[str] = (), notes: Iterable[str] = ()) -> int:
    """Run one training job. Collective over the session's ranks. remarks: warnings about options. notes: lines
    about options.

    Returns 0, or EXIT_STOPPED if it was asked to stop before the last epoch.
    """
    comm = session.comm
    start_logging(comm.rank)
    stop = StopRequest.of_this_process()
    stop.set_deadline(job_end_time(), config.run.stop_before)
    config = config.replace(run_dir=comm.broadcast_object(config.run.run_dir or _default_run_dir(config, comm)))
    with contextlib.ExitStack() as stack:
        ready, asked = stack.enter_context(bring_up(config, session)), config.schedule.intra_node
        learned_features.check_transport(ready.plan.spec, comm)
        config, meta = ready.plan.config, ready.graph.file.meta
        run_dir, warnings = None, list[str]()
        with comm.together("opening the run directory"):
            if comm.rank == 0:
                warnings = [*remarks, *remarks_on_graph(ready.plan, meta), *remarks_on_links(config, ready.graph.file)]
                run_dir = RunDir(config.run.run_dir, config.run.resume, watchers_of(config))
                stack.enter_context(contextlib.closing(run_dir))
        comm.show_heartbeats(config.run.run_dir)
        if config.run.stop_before and job_end_time() is None:
            warnings.append("without effect: --stop-before (the batch system does not say when this job ends)")
        if comm.rank == 0:
            for note in notes:
                log.info("%s", note)
            for warning in warnings:
                log.warning("%s", warning)
        return _train(ready, run_dir, stop, asked == "auto")


def _train(ready: BringUp, run_dir: RunDir | None, stop: StopRequest, chose: bool) -> int:
    """chose: whether --intra-node left it to the plan how ranks of a node exchange rows."""
    session, file, map_name, buffers = ready.session, ready.graph.file, ready.graph.map_name, ready.buffers
    config, spec, comm, started = ready.plan.config, ready.plan.spec, session.comm, time.perf_counter()
    log.info(
        "graph %s: %s nodes, %s edges, %d features, %d %s; map %r for %d ranks, %d threads each",
        file.path,
        f"{file.meta.num_nodes:,}",
        f"{file.meta.num_edges:,}",
        file.meta.num_features,
        spec.classes,
        TASKS[config.task.task].outputs,
        map_name,
        comm.size,
        session.threads,
    )
    places, warnings = describe_affinity(comm, session.threads)
    for place in places:
        log.info("%s", place)
    for warning in warnings:
        log.warning("%s", warning)
    if config.run.matmul == "medium" and not bf16_instructions():
        log.warning(
            "--matmul medium changes nothing here: this processor has no bf16 instructions (see `hpcgnn doctor`)"
        )
    if spec.loop_relation:
        log.info(
            "added self loops are relation %d of %s, besides the weights that it has for a node itself",
            spec.edge_types,
            spec.model,
        )
    trim_heap()
    peak, before_graph, shared, code = PeakMemory(), resident_bytes(), shared_bytes(), file_bytes()
    profile = MemoryProfile(peak, buffers.arena, LiveTensors()) if config.run.profile_memory else None
    watch, tracer = profile or unwatched, Tracer(config, comm) if config.run.trace else None
    local = ready.load(watch)
    check_weights(local, spec, comm)
    quality = partition_quality(local, map_name, comm)
    if quality["imbalance_nodes"] > IMBALANCE_WARNING:
        log.warning(
            "the map is out of balance: the largest rank has %.2f times the mean of nodes (expected at most %.2f); "
            "partition the graph into more clusters",
            quality["imbalance_nodes"],
            IMBALANCE_WARNING,
        )
    trim_heap()
    baseline = resident_bytes()
    if not peak.begin_span():
        log.warning("the kernel does not let the memory's high-water mark be reset: training_growth_bytes is unknown")
    trainer = Trainer(local, ready.plan, comm, buffers, make_plugins, both(watch, tracer.span) if tracer else watch)
    if tracer is not None:
        trainer.plugins.add(tracer)
    check_splits(trainer.evaluator.counts, config, comm.rank, trainer.evaluator.task.judged)
    if chose and comm.size > 1:
        log.info("--intra-node auto: %s", _on_nodes(trainer, local.inward.plan))
    local = trainer.local  # the one before it goes
    trim_heap()
    progress, best_state = _resume(trainer, config, spec, file.meta, run_dir)
    log.info(
        "%s: %s parameters; halo %s rows%s in %d rounds; run directory %s",
        spec.model,
        f"{sum(p.numel() for p in trainer.model.parameters()):,}",
        f"{quality['halo_rows_total']:,}",
        _travelling(local, comm),
        len(local.inward.plan.rounds),
        config.run.run_dir,
    )
    if trainer.views.subgraph is not None:
        edges = comm.total(torch.tensor([trainer.views.subgraph.inward.num_edges]), "plan").item()
        counts = trainer.views.subgraph.num_nodes, file.meta.num_nodes, edges
        log.info("inductive: training sees %s of %s nodes, and %s edges", *map("{:,}".format, counts))
    if computed := trainer.views.rows_computed(len(trainer.model.convs)):
        rows = comm.total(torch.tensor(computed), "plan").tolist()
        log.info(
            "pruned: of %s rows the layers compute %s in training",
            f"{file.meta.num_nodes:,}",
            in_turn(rows),
        )
    hold_within(trainer, ready.probe, config, session, ready.limit)
    seconds_loading = time.perf_counter() - started
    begun, meter = progress.epoch, Meter.of(comm)
    with stop.of_ctrl_c(speaks=comm.rank == 0), meter.watching():
        done = run_epochs(trainer, config, progress, run_dir, best_state, stop)
    if not done:
        log.info(
            "stopped after epoch %d of %d (%s); a checkpoint is written: continue with --resume --run-dir %s",
            progress.epoch,
            sum(options.epochs for options in trainer.stages),
            stop.reason(),
            config.run.run_dir,
        )
        stop.signalled = False
        return EXIT_STOPPED
    peak.read()
    # Rows of others that this process has read in place are theirs.
    foreign = windows = 0
    if (in_place := trainer.views.in_place) is not None:
        foreign = in_place.foreign_bytes()
        windows = foreign + in_place.own_bytes + in_place.common_bytes()
    growth = peak.span - foreign - baseline if peak.was_reset else float("nan")
    memory: dict[str, Any] = {
        "baseline": baseline,
        "growth": growth,
        "peak": peak.overall - foreign,
        "libraries": before_graph,
        "code": code,
    }
    if profile and peak.was_reset:
        memory["profile"] = {
            "base_bytes": before_graph,
            "base_mpi_bytes": session.mpi_bytes,
            "phase_peak_bytes": profile.marks,
            "account_bytes": make_account(trainer, local, profile, max(0, shared_bytes() - shared - windows)),
        }
    ranks = gather_rank_records(trainer, local, memory, meter.reading)
    with comm.together("writing the results"):
        if run_dir is not None and ranks is not None:
            energy = find_energy([rank["energy"] for rank in ranks], (begun + 1, progress.epoch))
            summary = summarise(
                trainer, config, session, file.meta, spec, progress, quality, ranks, seconds_loading, energy, run_dir
            )
            with comm.heartbeat.computing():
                show_result(summary, run_dir)
    return 0


def _on_nodes(trainer: Trainer, of_ranks: HaloPlan) -> str:
    """What --intra-node auto came to, and why. Collective. of_ranks: the plan of messages between ranks."""
    if not trainer.plan.in_place:
        return (
            "messages; --schedule, --task, --memory, --edge-dropout or --comm needs rows of ranks one by one, or ranks "
            "of a node cannot map each other's memory"
        )
    if trainer.views.in_place is None:
        return "messages; every node has one rank"
    near, now = trainer.views.in_place.ranks, trainer.local.inward.plan
    needed = sum(int(rows) for k, rows in enumerate(of_ranks.receive_counts) if of_ranks.source(k + 1) not in near)
    rows, less = trainer.comm.total(torch.tensor([needed, now.num_halo * (now.peers.place == 0)]), "plan").tolist()
    return (
        f"shared, {'with' if huge_pages() else 'without'} huge pages of shared memory: in an exchange {less:,} rows or "
        f"sums cross between {now.size} nodes, {less / now.size:,.0f} into a node, where ranks would need {rows:,} rows"
    )


def remarks_on_graph(plan: RunPlan, meta: GraphMeta) -> list[str]:
    """Return lines about options without effect on this graph, and about data that the model ignores."""
    config, spec = plan.config, plan.spec
    lines = ignored(spec, meta.num_edge_features)
    if config.task.target_scale != "standard" and config.task.task != REGRESSION:
        lines.append(f"without effect: --target-scale (the task of the graph is {config.task.task})")
    inputs = inputs_of(spec.inputs)
    if not inputs.file and meta.num_features:
        lines.append(f"the {meta.num_features} features of the graph are ignored by --features {config.task.features}")
    raw = spec.input_dropout == "raw" and spec.dropout > 0
    if config.schedule.frozen_halo == "refetch" and spec.constant_input and not (spec.sparse_input or raw):
        lines.append(
            f"without effect: --frozen-halo ({spec.model} keeps the aggregate of its input, and nothing of the halo)"
        )
    return lines


def _with_nan(values: dict[str, Any]) -> dict[str, Any]:
    """JSON has no NaN: the metric of an empty split was written as null."""
    return {key: float("nan") if value is None else value for key, value in values.items()}


def _default_run_dir(config: Config, comm: Communicator) -> str:
    return f"runs/{config.model.model}-{comm.size}r-{time.strftime('%Y%m%d-%H%M%S')}"


def _travelling(local: LocalGraph, comm: Communicator) -> str:
    """Describe the messages in place of the halo's rows, for the log. Collective."""
    plan, between = local.inward.plan, local.inward.near is not None
    if plan.sending.sums is None and not between:
        return ""
    # All ranks of a node have the plan of the node.
    rows = int(comm.total(torch.tensor([plan.num_halo * (plan.peers.place == 0)]), "plan"))
    what = "rows" if plan.sending.sums is None else "rows and sums"
    return f", {rows:,} as {what}{f' between {plan.size} nodes' if between else ''},"


def run_identity(config: Config, spec: ModelSpec, meta: GraphMeta) -> dict[str, Any]:
    """Return the facts that must agree between a checkpoint and a run that uses it. config: resolved."""
    return {
        "graph": meta.uuid,
        "schedule": config.schedule.schedule,
        "seed": config.run.seed,
        "self_loops": config.data.self_loops,
        "optimizer": config.optim.optimizer,
        "plugin": plugin_hash(config.model.plugin),
        **{field.name: str(getattr(spec, field.name)) for field in fields(spec) if not field.metadata.get("derived")},
    }


def _resume(
    trainer: Trainer, config: Config, spec: ModelSpec, meta: GraphMeta, run_dir: RunDir | None
) -> tuple[Progress, dict[str, torch.Tensor] | None]:
    """(Progress, best state), from the last checkpoint if asked for and there is one. Collective."""
    comm, identity = trainer.comm, run_identity(config, spec, meta)
    progress = Progress(identity=identity)
    path = None
    with comm.together("looking for a checkpoint"):
        if run_dir is not None and config.run.resume:
            path = newest_readable(run_dir.path, log.warning)
    path = comm.broadcast_object(path)
    if path is None:
        with comm.together("writing the run directory"):
            if run_dir is not None:
                if (run_dir.path / "config.toml").exists():
                    changed = changes(run_dir.path, config)
                    log.info(
                        "%s has no checkpoint: the run begins afresh with its options%s",
                        run_dir.path,
                        f", but for {changed}" if changed else "",
                    )
                run_dir.begin(config, 0)
        return progress, None
    with comm.together("reading the checkpoint"):
        saved, model_state, best_state, optimizer_state = read_checkpoint(path)
        check_identity(path, saved["identity"], identity)
        check_stage(path, saved, len(trainer.stages))
        changed = changes(run_dir.path, config) if run_dir is not None else ""
        progress.stage, progress.begun = saved.get("stage", 0), saved.get("begun", 0)
        trainer.begin_stage(progress.stage, progress.begun)
        restore(trainer.model, trainer.optimizer, model_state, optimizer_state)
        for plugin in trainer.plugins:
            if plugin.group:
                plugin.restore(read_group(path, plugin.group))
        progress.epoch, progress.best = saved["epoch"], saved["best"] and _with_nan(saved["best"])
        schedule_state = read_schedule_state(path)
        if run_dir is not None:
            run_dir.begin(config, progress.epoch)
    trainer.plugins.load(path.parents[1], progress.epoch)
    trainer.schedule.sync.restore(schedule_state, trainer.optimizers)
    log.info("resuming from %s: %d epochs are done", path, progress.epoch)
    if changed:
        log.info("options that change from epoch %d on: %s", progress.epoch + 1, changed)
    rank_state.load(trainer, config, progress.epoch)
    return progress, best_state
