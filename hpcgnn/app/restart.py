"""The start of a run at its last checkpoint, and the facts that a checkpoint and a run must share."""

import logging
from dataclasses import fields
from typing import Any

import torch

from hpcgnn.app.resuming import changes
from hpcgnn.config import Config
from hpcgnn.engine.checkpoint import Checkpoint, check_identity, check_stages, restore
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
            newest = Checkpoint.newest(run_dir.path, log.warning)
    found = comm.broadcast_object(newest and str(newest.path))
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
    with comm.together("reading the checkpoint"):
        checkpoint = Checkpoint(found)
        path, saved = checkpoint.path, checkpoint.progress
        check_identity(path, checkpoint.identity, identity)
        check_stages(path, saved, progress.planned)
        changed = changes(run_dir.path, config) if run_dir is not None else ""
        progress.stage, progress.begun = saved.get("stage", 0), saved.get("begun", 0)
        progress.epoch, progress.best = checkpoint.epoch, saved["best"]
        trainer.begin_stage(progress.stage, progress.begun)
        restore(trainer.model, checkpoint.model)
        restore(trainer.optimizer, checkpoint.optimizer)
        if run_dir is not None:
            run_dir.begin(config, progress.epoch)
    for plugin in trainer.plugins:
        plugin.load(checkpoint)
    log.info("resuming from %s: %d epochs are done", path, progress.epoch)
    if changed:
        log.info("options that change from epoch %d on: %s", progress.epoch + 1, changed)
    return progress, checkpoint.best
