"""`--resume`: the options of the resumed run, the differences from them, and the start at its last checkpoint.

A resumed run takes its own config.toml as the default, so that `--resume --run-dir X` is enough. The checkpoint's
identity, or `on_resume` of an option, refuses changes that would make it another run. One line lists all other changes.
"""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from hpcgnn.comm.launcher import launch
from hpcgnn.config import Choices, Config, filed_value, option_of, read_toml
from hpcgnn.engine.checkpoint import Checkpoint, check_identity, check_stages, restore
from hpcgnn.engine.epochs import Progress
from hpcgnn.engine.rundir import RunDir
from hpcgnn.engine.trainer import Trainer
from hpcgnn.errors import CheckpointError, ConfigError, HpcgnnError, RunDirError
from hpcgnn.graphfile.schema import GraphMeta
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.likely_names import file_beside
from hpcgnn.nn.plugin import COPY, load_plugin, plugin_hash
from hpcgnn.option_fields import flag
from hpcgnn.options import DEALT
from hpcgnn.options.removed import REMOVED, REMOVED_VALUES
from hpcgnn.plan.choices import registry_choices
from hpcgnn.plan.run_plan import RunPlan

log = logging.getLogger("hpcgnn")
# Of a plugin the checkpoint knows the code, wherever it lies.
_NOT_COMPARED = ("run_dir", "resume", "plugin")
# Options that belong to the machine of the training, not to the model, and one that the graph file sets again.
_NOT_KEPT = ("threads", "partition", "comm", "intra_node", "loss")
# Removed options of the machine: a run of before that had one goes on, and is used, without it.
_GONE = ("spare_core", "log_every", "auto_partition")
# Removed options of training: a run of before that had one is used as any other, and does not go on.
_GONE_FROM_TRAINING = tuple(name for name, removed in REMOVED.items() if removed.trained)


def options_to_continue(given: Mapping[str, Any], rank_counts: Sequence[int] | None = None) -> dict[str, Any]:
    """Return the flat options of the run to resume; {} without --resume, or if there is no run yet.

    Threads are left out, since they belong to the machine. So is a map that the file lacks for the number of ranks.

    Args:
        given: options of the command line.
        rank_counts: numbers of ranks of a dry run, in place of the launcher's.

    Raises:
        ConfigError, RunDirError: the run cannot continue with these options.
    """
    if not given.get("resume"):
        return {}
    if not given.get("run_dir"):
        raise ConfigError("--resume: expected --run-dir with the directory of the run to go on with, got none")
    path = Path(given["run_dir"]) / "config.toml"
    if not path.is_file():
        if not given.get("graph"):
            raise RunDirError(
                f"--resume: there is no run in {given['run_dir']} (no config.toml); expected the directory of a run, "
                "or --graph and all other options, to begin one there"
            )
        return {}
    saved = {name: value for name, value in read_toml(path, _GONE).items() if name != "threads"}
    saved["plugin"] = plugin_of_run(path.parent)
    if not _has_map({**saved, **given}, rank_counts or [launch().size]):
        saved.pop("partition", None)
    return saved


def options_of_run(run_dir: str | Path, given: Mapping[str, Any]) -> dict[str, Any]:
    """The flat options of a finished or stopped run, with those `given` for its use. Raises RunDirError."""
    path = Path(run_dir) / "config.toml"
    if not path.is_file():
        near = file_beside(run_dir)
        raise RunDirError(f"{run_dir} is not the directory of a run: expected {path} of `hpcgnn train`{near}")
    saved = read_toml(path, _GONE_FROM_TRAINING)
    gone = {key for key, value in saved.items() if str(value) in REMOVED_VALUES.get(key, {})}  # used in training alone
    options = {key: value for key, value in saved.items() if key not in _NOT_KEPT and key not in gone}
    options["plugin"] = plugin_of_run(run_dir)
    if given.get("metric") == "auto":  # the run's, which says what it was trained for
        given = {name: value for name, value in given.items() if name != "metric"}
    return {**options, **given, "run_dir": str(run_dir)}


def plugin_of_run(run_dir: str | Path) -> str:
    """The plugin file of a run, which may declare options of its config.toml; '' without one, or without a run."""
    path = Path(run_dir) / "config.toml"
    plugin = (filed_value(path, "plugin") if path.is_file() else None) or ""
    # Runs of earlier versions have no copy, and the directory may have been moved.
    return str(path.with_name(COPY)) if plugin and path.with_name(COPY).exists() else plugin


def load_plugin_of_run(run_dir: str | Path, choices: Choices, trusted: bool) -> Choices:
    """Run the plugin of a run, if it has one, and return the choices with its names. Raises ConfigError for code that
    is not the code of the newest readable checkpoint, or that belongs to another user unless `trusted`.
    """
    plugin = plugin_of_run(run_dir)
    if not plugin:
        return choices
    found = Checkpoint.newest(run_dir, lambda text: None)
    recorded = "" if found is None else found.identity.get("plugin", "")
    load_plugin(plugin, "" if trusted else f"the run {run_dir}", recorded)
    return registry_choices()


def _has_map(options: Mapping[str, Any], rank_counts: Sequence[int]) -> bool:
    if options.get("partition") in DEALT:
        return True
    try:
        with GraphFile(options["graph"]) as file:
            numbers = file.partitionings().get(options.get("partition", ""), ())
            return all(ranks in numbers for ranks in rank_counts)
    except (HpcgnnError, KeyError):  # the later opening of the graph reports it
        return True


def changes(run_dir: str | Path, config: Config) -> str:
    """Return the differences between a run's config.toml and its new configuration, as '--lr 0.01 to 5', or ''.

    One rank calls this, before the new config.toml is written.

    Args:
        run_dir: the run directory.
        config: the resolved configuration.

    Raises:
        CheckpointError: an option changed that must stay.
    """
    path, found = Path(run_dir) / "config.toml", []
    if not path.is_file():
        return ""
    saved = read_toml(path, _GONE)
    for section in config.to_dict().values():
        for name, value in section.items():
            if name in _NOT_COMPARED or saved.get(name, value) == value:
                continue
            if name == "graph" and Path(value).absolute() == Path(saved[name]).absolute():
                continue
            if option_of(name).metadata["on_resume"] == "same":
                raise CheckpointError(
                    f"{run_dir} belongs to another run: {flag(name)} is {saved[name]!r} there and {value!r} here; "
                    f"resume with {flag(name)} {_shown(saved[name])}, or choose a new --run-dir"
                )
            found.append(f"{flag(name)} {_shown(saved[name])} to {_shown(value)}")
    return ", ".join(found)


def _shown(value: Any) -> str:
    return "none" if value == "" else f"{value:g}" if isinstance(value, float) else str(value)


def run_identity(plan: RunPlan, meta: GraphMeta) -> dict[str, Any]:
    """Return the facts that must agree between a checkpoint and a run that uses it."""
    config = plan.config
    return {
        "graph": meta.uuid,
        "schedule": config.schedule.schedule,
        "seed": config.run.seed,
        "self_loops": config.data.self_loops,
        "optimizer": config.optim.optimizer,
        "plugin": plugin_hash(config.model.plugin),
        **plan.spec.identity,
    }


def resume(
    trainer: Trainer, run_dir: RunDir | None, meta: GraphMeta
) -> tuple[Progress, dict[str, torch.Tensor] | None]:
    """(Progress, best state), from the last checkpoint if asked for and there is one. Collective."""
    comm, config = trainer.comm, trainer.plan.config
    identity = run_identity(trainer.plan, meta)
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
