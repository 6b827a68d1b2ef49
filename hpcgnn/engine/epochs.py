"""The only `for epoch in …`: step, evaluate when due, record, checkpoint when due, stop when asked to."""

import logging
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from tqdm import tqdm

from hpcgnn.comm.ledger import KINDS
from hpcgnn.config import Config
from hpcgnn.engine import rank_state
from hpcgnn.engine.checkpoint import save_checkpoint
from hpcgnn.engine.clock import PHASES
from hpcgnn.engine.pace import Pace
from hpcgnn.engine.rundir import RunDir, terminal
from hpcgnn.engine.stopping import StopRequest
from hpcgnn.records import shown_number
from hpcgnn.tasks.base import Metric

if TYPE_CHECKING:
    from hpcgnn.engine.trainer import Trainer


log = logging.getLogger("hpcgnn")


@dataclass
class Progress:
    """The progress of a run; every checkpoint saves it.

    Attributes:
        epoch: number of finished epochs, and so the number of the last one: files count epochs from 1.
        best: {epoch, val, test, train} of the best validation of the present stage's predictor.
        stage: the schedule's present stage.
        begun: number of finished epochs at the start of the stage.
        planned: most epochs of each stage.
    """

    epoch: int = 0
    best: dict[str, Any] | None = None
    stage: int = 0
    begun: int = 0
    identity: dict[str, Any] = field(default_factory=dict)
    planned: list[int] = field(default_factory=list)


def run_epochs(
    trainer: "Trainer",
    config: Config,
    progress: Progress,
    run_dir: RunDir | None,
    best_state: dict[str, torch.Tensor] | None = None,
    stop: StopRequest | None = None,
) -> tuple[bool, dict[str, torch.Tensor] | None]:
    """Train from `progress.epoch` to the end of the schedule's last stage. Collective.

    Args:
        trainer: the trainer.
        config: the configuration.
        progress: position of the run; the function updates it.
        run_dir: the run directory on rank 0, None on the others.
        best_state: parameters of the best epoch so far.
        stop: this rank's StopRequest. A request on one rank stops all ranks after the same epoch, with a checkpoint.

    Returns:
        (whether all epochs are done, the parameters of the best epoch or None).
    """
    every = config.run
    bar = tqdm(
        total=sum(options.epochs for options in trainer.stages),
        initial=progress.epoch,
        unit="epoch",
        disable=run_dir is None or not terminal(),
        dynamic_ncols=True,
    )
    pace, plugins = Pace(every.log_every, progress.epoch), trainer.plugins
    last = stopping = False
    trainer.schedule.sync.prepare(trainer.training_graph)
    while not (stopping or last):
        if _over(trainer, progress):
            if progress.stage + 1 == len(trainer.stages):
                break  # the checkpoint was of a run that is done
            best_state = _next_stage(trainer, progress, best_state)
        epoch = progress.epoch
        with plugins.epoch(epoch + 1):
            loss = trainer.step(epoch)
            record = {"epoch": epoch + 1, "loss": loss, "lr": trainer.learning_rate(epoch), **trainer.stage.note}
            progress.epoch = epoch + 1
            if every.eval_every and (_over(trainer, progress) or (epoch + 1) % every.eval_every == 0):
                record.update(trainer.evaluate())
                if _better(trainer.evaluator.metric, record["val"], progress.best):
                    progress.best = {key: record[key] for key in ("epoch", "train", "val", "test")}
                    best_state = trainer.evaluated_state()
                    plugins.new_best()
            last = _over(trainer, progress) and progress.stage + 1 == len(trainer.stages)
            plugins.end_epoch()
            costs, stopping, failed = costs_of_epoch(
                trainer, stop is not None and stop.is_due(), run_dir is not None and run_dir.failed
            )
            if failed:  # of an epoch before: no rank waits for the file of this one
                with trainer.comm.together("writing the run directory"):
                    if run_dir is not None:
                        run_dir.settle()
            record.update(costs)
            due = last or stopping or bool(every.checkpoint_every and (epoch + 1) % every.checkpoint_every == 0)
            if due:
                with plugins.checkpoint():
                    _write(trainer, config, progress, run_dir, record, best_state)
            elif run_dir is not None:
                run_dir.append(record)
            plugins.after_record(record)
        _show(record, bar, pace, trainer, progress, last or stopping)
        plugins.finish_epoch(epoch + 1, last or stopping)
    bar.close()
    return last or not stopping, best_state


def _write(
    trainer: "Trainer",
    config: Config,
    progress: Progress,
    run_dir: RunDir | None,
    record: dict[str, Any],
    best_state: dict[str, torch.Tensor] | None,
) -> None:
    """The record of an epoch, and a checkpoint. Collective."""
    state = trainer.schedule.sync.state(trainer.optimizers)
    rank_state.save(trainer, config, progress.epoch)
    trainer.plugins.save(config.run.run_dir, progress.epoch)
    with trainer.comm.together("writing the run directory"):
        if run_dir is not None:
            run_dir.append(record)
            run_dir.flush_to_disk()
            groups = {"schedule": state, **trainer.plugins.groups()}
            save_checkpoint(run_dir.path, trainer.model, trainer.optimizer, best_state, vars(progress), groups)


def _over(trainer: "Trainer", progress: Progress) -> bool:
    """Whether the present stage is done: its epochs are, or validation has not got better for as long as it may."""
    options = trainer.stage.options
    if progress.epoch - progress.begun >= options.epochs:
        return True
    if not options.patience or progress.best is None:
        return False
    return progress.epoch - max(progress.best["epoch"], progress.begun) >= options.patience


def _next_stage(
    trainer: "Trainer", progress: Progress, best_state: dict[str, torch.Tensor] | None
) -> dict[str, torch.Tensor] | None:
    """Leave a stage with its best parameters for the next one. Returns the best state so far of the model that the next
    stage trains, None if that is another predictor.
    """
    if best_state is not None:
        trainer.model.load_state_dict(best_state)
    progress.stage, progress.begun = progress.stage + 1, progress.epoch
    same_predictor = trainer.schedule.sync.follow(progress.stage, trainer.model)
    trainer.begin_stage(progress.stage, progress.epoch)
    if same_predictor:
        return best_state
    progress.best = None
    return None


def _better(metric: Metric, value: float, best: dict[str, Any] | None) -> bool:
    return not math.isnan(value) and (best is None or metric.better(value, best["val"]))


def costs_of_epoch(
    trainer: "Trainer", stop: bool = False, failed: bool = False
) -> tuple[dict[str, dict[str, dict[str, float]]], bool, bool]:
    """Reduce the costs of an epoch over all ranks. Collective.

    The wish to stop and the failure of rank 0's file travel with the costs, so neither takes a message of its own.

    Returns:
        ({'seconds', 'cpu', 'bytes', 'messages'} by phase or kind, each {max, mean, min, sum} over ranks; whether any
            rank has to stop; whether any rank failed to write).
    """
    seconds, costs, traffic = trainer.clock.take(), trainer.clock.take_costs(), trainer.comm.ledger.take()
    names, values = [("cpu", name) for name in costs], list(costs.values())
    for phase, value in seconds.items():
        names.append(("seconds", phase))
        values.append(value)
    names.append(("seconds", "epoch"))
    values.append(sum(seconds[phase] for phase in PHASES))
    for kind in KINDS:
        entry = traffic.get(kind)
        names += [("seconds", f"{kind}_wait"), ("bytes", kind), ("messages", kind)]
        values += [entry.seconds_waiting, entry.bytes_sent, entry.messages] if entry else [0.0, 0.0, 0.0]
    local = torch.tensor(values, dtype=torch.float64)
    total = trainer.comm.total(local)
    flags = torch.tensor([stop, failed], dtype=torch.float64)
    extremes = trainer.comm.allreduce_(torch.cat([local, -local, flags]), "metrics", "max")
    result: dict[str, dict[str, dict[str, float]]] = {"seconds": {}, "cpu": {}, "bytes": {}, "messages": {}}
    for index, (group, name) in enumerate(names):
        if group in ("seconds", "cpu") or total[index]:
            exact = float if name.endswith("_seconds") or group == "seconds" else int
            result[group][name] = {
                "max": exact(extremes[index]),
                "mean": float(total[index]) / trainer.comm.size,
                "min": exact(-extremes[index + len(names)]),
                "sum": exact(total[index]),
            }
    return result, bool(extremes[-2]), bool(extremes[-1])


def _show(record: dict[str, Any], bar: tqdm, pace: Pace, trainer: "Trainer", progress: Progress, last: bool) -> None:
    shown = {key: shown_number(record[key]) for key in ("loss", "train", "val", "test") if key in record}
    bar.set_postfix(shown, refresh=False)
    bar.update()
    if bar.disable and trainer.comm.rank == 0:
        place, left = whereabouts(trainer, progress)
        text = pace.line(record, place, left, any(options.patience for options in trainer.stages), last)
        if text:
            log.info("%s", text)


def whereabouts(trainer: "Trainer", progress: Progress) -> tuple[str, int]:
    """(the epoch just done, of how many, in words; how many are left)."""
    here = progress.epoch - progress.begun
    left = sum(options.epochs for options in trainer.stages[progress.stage :]) - here
    total, layer = progress.epoch + left, trainer.stage.note.get("layer")
    if layer is None:
        return f"epoch {progress.epoch}/{total}", left
    layers = len(trainer.model.convs)
    what = "all layers" if layer == "all" else f"layer {layer}/{layers}"
    return f"{what}, epoch {here}/{trainer.stage.options.epochs} ({progress.epoch}/{total} in all)", left
