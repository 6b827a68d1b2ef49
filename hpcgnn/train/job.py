"""`hpcgnn train` from the opened graph file to the closed run directory, in the order in which it happens."""

import contextlib
import logging
import time
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from hpcgnn.comm.communicator import Communicator
from hpcgnn.comm.launcher import job_end_time
from hpcgnn.comm.session import Session
from hpcgnn.config import Config, listed
from hpcgnn.errors import ConfigError
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.graph.load import load_local_graph
from hpcgnn.graph.local import LocalGraph
from hpcgnn.graph.opening import open_graph
from hpcgnn.graphfile.labels import REGRESSION
from hpcgnn.graphfile.schema import GraphMeta
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.listing import in_turn
from hpcgnn.memory.resident import file_bytes, resident_bytes, shared_bytes
from hpcgnn.nn.plugin import plugin_hash
from hpcgnn.nn.registry import MODELS, ignored
from hpcgnn.nn.spec import ModelSpec
from hpcgnn.options.inputs import inputs_of
from hpcgnn.options.task import LINKS
from hpcgnn.schedules.privacy import check_privacy
from hpcgnn.schedules.schedule_registry import check_halo
from hpcgnn.tasks.registry import TASKS, resolve_task
from hpcgnn.train import learned_features, rank_state
from hpcgnn.train.account import make_account
from hpcgnn.train.affinity import describe_affinity
from hpcgnn.train.agreement import agree, facts_of_graph, facts_of_process
from hpcgnn.train.checkpoint import (
    check_identity,
    check_stage,
    newest_readable,
    read_averaged,
    read_checkpoint,
    read_schedule_state,
    restore,
)
from hpcgnn.train.choosing_maps import MADE_MAPS, choose_map
from hpcgnn.train.clock import both, unwatched
from hpcgnn.train.energy import Meter, find_energy
from hpcgnn.train.epochs import Progress, run_epochs
from hpcgnn.train.features_on_disk import shelving
from hpcgnn.train.links import link_split, remarks_on_links
from hpcgnn.train.live_tensors import LiveTensors
from hpcgnn.train.loop import Trainer
from hpcgnn.train.matmul import bf16_instructions, set_matmul
from hpcgnn.train.memory_limit import Limit, memory_limit
from hpcgnn.train.memory_profile import MemoryProfile, PeakMemory, trim_heap
from hpcgnn.train.model_spec import model_spec
from hpcgnn.train.resuming import changes
from hpcgnn.train.rundir import RunDir, start_logging
from hpcgnn.train.splits import check_splits
from hpcgnn.train.stopping import EXIT_STOPPED, StopRequest
from hpcgnn.train.summary import gather_rank_records, partition_quality, show_result, summarise
from hpcgnn.train.trace import Tracer
from hpcgnn.train.watching import watchers_of
from hpcgnn.train.weights import check_weights
from hpcgnn.train.within_memory import Toy, check_memory, hold_within, toy_of

log = logging.getLogger("hpcgnn")
IMBALANCE_WARNING = 1.05


def train(config: Config, session: Session, remarks: Iterable[str] = ()) -> int:
    """Run one training job. Collective over the session's ranks. remarks: lines about the options, for the log.

    Returns 0, or EXIT_STOPPED if it was asked to stop before the last epoch.
    """
    comm = session.comm
    start_logging(comm.rank)
    agree(comm, facts_of_process(config, comm))
    stop = StopRequest.of_this_process()
    stop.set_deadline(job_end_time(), config.run.stop_before)
    torch.set_num_threads(session.threads)
    set_matmul(config.run.matmul)
    config = config.replace(run_dir=comm.broadcast_object(config.run.run_dir or _default_run_dir(config, comm)))
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(open_graph(config.data.graph, comm, labelled=config.task.task != LINKS))
        map_name, cluster_to_rank = choose_map(file, config, comm)
        with comm.together("checking the options"):
            check_lost_ranks(config, comm.size)
            check_memory(config)
        spec = model_spec(file.meta, config)
        agree(comm, facts_of_graph(file.meta, map_name, cluster_to_rank, spec))
        learned_features.check_transport(spec, comm)
        config = resolve(config, spec, file.meta, map_name, session)
        with comm.together("trying the model on a toy graph"):
            check_privacy(config, spec)
            check_halo(config, spec)
            toy, limit = toy_of(spec, config, config.task.task), memory_limit(config, session)
        buffers = make_buffers(toy.row_bytes, config)
        run_dir, said = None, list[str]()
        with comm.together("opening the run directory"):
            if comm.rank == 0:
                said = [*remarks, *remarks_on_graph(config, spec, file.meta), *remarks_on_links(config, file)]
                run_dir = RunDir(config.run.run_dir, config.run.resume, watchers_of(config))
                stack.enter_context(contextlib.closing(run_dir))
        comm.show_heartbeats(config.run.run_dir)
        if comm.rank == 0:
            for remark in said:
                log.warning("%s", remark)
            if config.run.stop_before and job_end_time() is None:
                log.warning("without effect: --stop-before (the batch system does not say when this job ends)")
        return _train(config, session, file, map_name, cluster_to_rank, spec, buffers, toy, limit, run_dir, stop)


def _train(
    config: Config,
    session: Session,
    file: GraphFile,
    map_name: str,
    cluster_to_rank: np.ndarray,
    spec: ModelSpec,
    buffers: HaloBuffers,
    toy: Toy,
    limit: Limit | None,
    run_dir: RunDir | None,
    stop: StopRequest,
) -> int:
    comm, started = session.comm, time.perf_counter()
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
    self_loops = config.data.self_loops
    if spec.loop_relation:
        log.info(
            "added self loops are relation %d of %s, besides the weights that it has for a node itself",
            spec.edge_types,
            spec.model,
        )
    cap = max(1, buffers.cap(buffers.widest_row))
    trim_heap()
    peak, before_graph, shared, code = PeakMemory(), resident_bytes(), shared_bytes(), file_bytes()
    profile = MemoryProfile(peak, buffers.arena, LiveTensors()) if config.run.profile_memory else None
    watch, tracer = profile or unwatched, Tracer(config, comm) if config.run.trace else None
    keep_edges = MODELS[spec.model].edges(spec)
    local = load_local_graph(
        *(file, cluster_to_rank, comm, cap, self_loops, spec.dtype, keep_edges, watch, inputs_of(spec.inputs)),
        labelled=config.task.task != LINKS,
        links=link_split(config),
        edge_features=spec.edge_features > 0,
        shelve=shelving(config, session, spec, toy, limit, buffers),
    )
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
    trainer = Trainer(local, spec, config, comm, buffers, both(watch, tracer.span) if tracer else watch)
    check_splits(trainer.evaluator.counts, config, comm.rank, trainer.evaluator.task.judged)
    local = trainer.local  # the one before it goes
    trim_heap()
    progress, best_state = _resume(trainer, config, spec, file.meta, run_dir)
    log.info(
        "%s: %s parameters; halo %s rows%s in %d rounds; run directory %s",
        spec.model,
        f"{sum(p.numel() for p in trainer.model.parameters()):,}",
        f"{quality['halo_rows_total']:,}",
        _as_sums(local, comm),
        len(local.inward.plan.rounds),
        config.run.run_dir,
    )
    if trainer.subgraph is not None:
        edges = comm.total(torch.tensor([trainer.subgraph.inward.num_edges]), "plan").item()
        counts = trainer.subgraph.num_nodes, file.meta.num_nodes, edges
        log.info("inductive: training sees %s of %s nodes, and %s edges", *map("{:,}".format, counts))
    if computed := trainer.rows_computed(local):
        rows = comm.total(torch.tensor(computed), "plan").tolist()
        log.info(
            "pruned: of %s rows the layers compute %s in training",
            f"{file.meta.num_nodes:,}",
            in_turn(rows),
        )
    hold_within(trainer, toy, config, session, limit)
    seconds_loading = time.perf_counter() - started
    begun, meter = progress.epoch, Meter.of(comm)
    with stop.of_ctrl_c(speaks=comm.rank == 0), meter.watching():
        done = run_epochs(trainer, config, progress, run_dir, best_state, stop, tracer)
    if not done:
        log.info(
            "stopped after epoch %d of %d (%s); a checkpoint is written: continue with --resume --run-dir %s",
            progress.epoch,
            sum(options.epochs for options in trainer.plan),
            stop.reason(),
            config.run.run_dir,
        )
        stop.signalled = False
        return EXIT_STOPPED
    peak.read()
    # Rows of others that this process has read in place are theirs.
    foreign = windows = 0
    if trainer.node_rows is not None:
        foreign = trainer.node_rows.foreign_bytes()
        windows = foreign + trainer.node_rows.own_bytes
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


def remarks_on_graph(config: Config, spec: ModelSpec, meta: GraphMeta) -> list[str]:
    """Lines about options that have no effect on this graph, and about what the model leaves unread of it."""
    lines = ignored(spec, meta.num_edge_features)
    if config.task.target_scale != "standard" and config.task.task not in ("auto", REGRESSION):
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


def check_lost_ranks(config: Config, ranks: int) -> None:
    """Raise ConfigError if --drop-ranks names a rank that there is not, or all."""
    lost = listed("--drop-ranks", config.schedule.drop_ranks, int, 0)
    if lost and (max(lost) >= ranks or len(set(lost)) == ranks):
        raise ConfigError(
            f"--drop-ranks: expected ranks in 0..{ranks - 1}, and not all of the {ranks}, got "
            f"{config.schedule.drop_ranks!r}"
        )


def _as_sums(local: LocalGraph, comm: Communicator) -> str:
    """What travels in place of the halo's rows, for the log. Collective."""
    plan = local.inward.plan
    if plan.sending.sums is None:
        return ""
    return f", {int(comm.total(torch.tensor([plan.num_halo]), 'plan')):,} as rows and sums,"


def resolve(config: Config, spec: ModelSpec, meta: GraphMeta, map_name: str, session: Session) -> Config:
    """The configuration with everything decided that was left to the program, as it is written to the run directory."""
    wanted = config.data.self_loops
    return resolve_task(config, meta).replace(
        self_loops=MODELS[spec.model].self_loops if wanted == "auto" else wanted,
        partition=map_name if map_name not in MADE_MAPS else config.data.partition,
        threads=session.threads,
    )


def make_buffers(row_bytes: int, config: Config) -> HaloBuffers:
    """The communication buffers of a rank, for rows of at most this size. Raises ConfigError, on all ranks, if none
    fits.
    """
    buffers = HaloBuffers(int(config.schedule.halo_buffer * 2**20))
    buffers.declare(max(1, row_bytes))
    if buffers.cap(buffers.widest_row) < 1:
        error = ConfigError(
            f"--halo-buffer {config.schedule.halo_buffer} MiB is too small for one row: expected at least "
            f"{3 * row_bytes / 2**20:.6f} MiB, three buffers of one row of {row_bytes} bytes"
        )
        error.everywhere = True
        raise error
    return buffers


def run_identity(config: Config, spec: ModelSpec, meta: GraphMeta) -> dict[str, Any]:
    """What must agree between a checkpoint and a run that uses it. config: resolved."""
    return {
        "graph": meta.uuid,
        "schedule": config.schedule.schedule,
        "seed": config.run.seed,
        "self_loops": config.data.self_loops,
        "optimizer": config.optim.optimizer,
        "plugin": plugin_hash(config.model.plugin),
        **{key: str(value) for key, value in vars(spec).items()},
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
        check_stage(path, saved, len(trainer.plan))
        changed = changes(run_dir.path, config) if run_dir is not None else ""
        progress.stage, progress.begun = saved.get("stage", 0), saved.get("begun", 0)
        trainer.begin_stage(progress.stage, progress.begun)
        restore(trainer.model, trainer.optimizer, model_state, optimizer_state)
        if trainer.averages is not None:
            trainer.averages.load(read_averaged(path))
        progress.epoch, progress.best = saved["epoch"], saved["best"] and _with_nan(saved["best"])
        schedule_state = read_schedule_state(path)
        if run_dir is not None:
            run_dir.begin(config, progress.epoch)
    learned_features.load(trainer, path.parents[1], progress.epoch)
    trainer.schedule.sync.restore(schedule_state, trainer.optimizers)
    log.info("resuming from %s: %d epochs are done", path, progress.epoch)
    if changed:
        log.info("options that change from epoch %d on: %s", progress.epoch + 1, changed)
    rank_state.load(trainer, config, progress.epoch)
    return progress, best_state
