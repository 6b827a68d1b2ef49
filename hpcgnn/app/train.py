"""`hpcgnn train` from the opened graph file to the closed run directory, in the order in which it happens."""

import contextlib
import logging
import os
import time
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import torch

from hpcgnn.app.bring_up import BringUp, bring_up
from hpcgnn.app.graph_checks import check_splits, check_weights
from hpcgnn.app.remarks import log_options, log_start, log_trainer, remarks_on_graph
from hpcgnn.app.resuming import resume
from hpcgnn.comm.launcher import job_end_time
from hpcgnn.comm.session import Session
from hpcgnn.config import Config
from hpcgnn.engine.epochs import Epochs
from hpcgnn.engine.hooks import Plugins
from hpcgnn.engine.rundir import RunDir, start_logging
from hpcgnn.engine.stopping import EXIT_STOPPED, StopRequest
from hpcgnn.engine.summary import gather_rank_records, partition_quality, show_result, summarise
from hpcgnn.engine.trainer import Trainer
from hpcgnn.memory.resident import trim_heap
from hpcgnn.plugins.registry import make_plugins, plugins_of_job

log = logging.getLogger("hpcgnn")


def train(config: Config, session: Session, remarks: Iterable[str] = (), notes: Iterable[str] = ()) -> int:
    """Run one training job. Collective over the session's ranks. remarks: warnings about options. notes: lines
    about options.

    Returns 0, or EXIT_STOPPED if it was asked to stop before the last epoch.
    """
    comm = session.comm
    start_logging(comm.rank)
    stop = StopRequest.of_this_process()
    stop.set_deadline(job_end_time(), config.run.stop_before)
    with contextlib.ExitStack() as stack:
        name = f"runs/{config.model.model}-{comm.size}r-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
        config = config.replace(run_dir=comm.broadcast_object(config.run.run_dir or name))
        ready = stack.enter_context(bring_up(config, session))
        config, run_dir = ready.plan.config, None
        with comm.together("opening the run directory"):
            plugins = plugins_of_job(config, session, ready.buffers)
            if comm.rank == 0:
                warnings = [*remarks, *remarks_on_graph(ready.plan, ready.graph.file)]
                run_dir = RunDir(config.run.run_dir, config.run.resume)
                stack.enter_context(contextlib.closing(run_dir))
                log_options(config, notes, warnings)
        session.show_heartbeats(config.run.run_dir)
        return _train(ready, plugins, run_dir, stop)


def _train(ready: BringUp, plugins: Plugins, run_dir: RunDir | None, stop: StopRequest) -> int:
    comm, started = ready.session.comm, time.perf_counter()
    log_start(ready)

    def watch(phase: str) -> contextlib.AbstractContextManager[None]:
        return plugins.around(lambda each: each.watch(phase))

    local = ready.load(watch)
    check_weights(local, ready.plan.spec, comm)
    quality = partition_quality(local, ready.graph.map_name, comm)
    for plugin in plugins:
        plugin.loaded()
    trainer = Trainer(local, ready.plan_on(local), comm, ready.buffers, make_plugins, watch)
    config = trainer.plan.config
    trainer.plugins.extend(plugins)
    check_splits(trainer.evaluator.counts, config, comm.rank, trainer.evaluator.task.judged)
    del local  # the trainer has its own
    trim_heap()
    progress, best_state = resume(trainer, run_dir, ready.graph.file.meta)
    if quality:
        log_trainer(trainer, quality)
    ready.memory.begin(trainer)
    seconds_loading = time.perf_counter() - started
    with stop.of_ctrl_c(speaks=comm.rank == 0), trainer.plugins.around(lambda each: each.run(trainer)):
        epochs = Epochs(trainer, progress, run_dir, best_state, stop)
        done = epochs.run()
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
    report: dict[str, Any] = {}
    task = trainer.plan.task
    if epochs.best_state is not None and (task.labels or task.reads_on):  # else each evaluation has all metrics
        report = _report_of_best(trainer, epochs.best_state, ready.graph.file.meta.type_names.get("classes", ()))
    ranks = gather_rank_records(trainer)
    with comm.together("writing the results"):
        if run_dir is not None and ranks is not None:
            summary = summarise(trainer, progress, quality, ranks, seconds_loading, run_dir, report)
            with comm.heartbeat.computing():
                show_result(summary, run_dir)
    return 0


def _report_of_best(trainer: Trainer, best_state: dict[str, torch.Tensor], names: Sequence[str]) -> dict[str, Any]:
    """The evaluator's report of the best epoch, after whose state no training goes on. Collective.

    names: of the classes, or empty.
    """
    trainer.model.load_state_dict(best_state)
    for plugin in trainer.plugins:
        plugin.take_best()
    with trainer.plugins.around(lambda each: each.evaluation()):
        return trainer.evaluator(trainer.model, trainer.graph, partial(trainer.evaluator.report, names=names))
