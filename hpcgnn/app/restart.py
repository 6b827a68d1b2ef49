"""The start of a run at its last checkpoint, and the facts that a checkpoint and a run must share."""

import logging
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch

from hpcgnn.app.resuming import changes
from hpcgnn.config import Config
from hpcgnn.engine import rank_state
from hpcgnn.engine.checkpoint import (
    newest_readable,
    read_checkpoint,
    read_group,
    read_schedule_state,
    restore,
)
from hpcgnn.engine.checkpoint_checks import check_identity, check_stages
from hpcgnn.engine.epochs import Progress
from hpcgnn.engine.rundir import RunDir
from hpcgnn.engine.trainer import Trainer
from hpcgnn.graphfile.schema import GraphMeta
from hpcgnn.nn.plugin import plugin_hash
from hpcgnn.nn.spec import ModelSpec

log = logging.getLogger("hpcgnn")


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
        **{name: str(value) for name, value in spec.facts},
    }


def resume(
    trainer: Trainer, run_dir: RunDir | None, meta: GraphMeta
) -> tuple[Progress, dict[str, torch.Tensor] | None]:
    """(Progress, best state), from the last checkpoint if asked for and there is one. Collective."""
    comm, config = trainer.comm, trainer.plan.config
    identity = run_identity(config, trainer.plan.spec, meta)
    progress = Progress(identity=identity, planned=[options.epochs for options in trainer.stages])
    newest = None
    with comm.together("looking for a checkpoint"):
        if run_dir is not None and config.run.resume:
            newest = newest_readable(run_dir.path, log.warning)
    found = comm.broadcast_object(newest and str(newest))
    if found is None:
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
    path = Path(found)
    with comm.together("reading the checkpoint"):
        saved, model_state, best_state, optimizer_state = read_checkpoint(path)
        check_identity(path, saved["identity"], identity)
        check_stages(path, saved, progress.planned)
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


def _with_nan(values: dict[str, Any]) -> dict[str, Any]:
    """JSON has no NaN: the metric of an empty split was written as null."""
    return {key: float("nan") if value is None else value for key, value in values.items()}
