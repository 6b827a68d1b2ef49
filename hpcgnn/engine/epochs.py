"""The only loop over epochs: step, evaluate when due, record, checkpoint when due, stop when asked to."""

import logging
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from hpcgnn.comm.ledger import KINDS, LedgerEntry
from hpcgnn.engine.checkpoint import Tensors, save_checkpoint
from hpcgnn.engine.clock import PHASES, Pace
from hpcgnn.engine.rundir import RunDir
from hpcgnn.engine.stopping import StopRequest

if TYPE_CHECKING:
    from hpcgnn.engine.trainer import Trainer


log = logging.getLogger("hpcgnn")
Record = dict[str, Any]


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


class Epochs:
    """Trains from `progress.epoch` to the end of the schedule's last stage.

    Attributes:
        progress: position of the run.
        best_state: parameters of the best epoch so far, or None.
    """

    def __init__(
        self,
        trainer: "Trainer",
        progress: Progress,
        run_dir: RunDir | None,
        best_state: Tensors | None = None,
        stop: StopRequest | None = None,
    ) -> None:
        """run_dir: of rank 0, None on the others. stop: of this rank. A request on one rank stops all ranks after the
        same epoch, with a checkpoint.
        """
        self._trainer, self._run_dir, self._stop = trainer, run_dir, stop
        self._options, self.progress, self.best_state = trainer.plan.config.run, progress, best_state

    def run(self) -> bool:
        """Train. Returns whether all epochs are done. Collective."""
        trainer, progress, stopping = self._trainer, self.progress, False
        pace = Pace(progress.epoch)
        trainer.schedule.sync.prepare(trainer.training_graph)
        while not (stopping or self._done()):
            if self._over():
                self._next_stage()
            with trainer.plugins.around(lambda each: each.epoch(progress.epoch + 1)):
                record, stopping = self._epoch()
            if trainer.comm.rank == 0:
                self._show(record, pace, stopping or self._done())
        return self._done()

    def _epoch(self) -> tuple[Record, bool]:
        """Train one epoch. Returns (its record, whether the run has been asked to stop)."""
        trainer, progress, plugins, run_dir = self._trainer, self.progress, self._trainer.plugins, self._run_dir
        loss, rate = trainer.step(progress.epoch), trainer.learning_rate(progress.epoch)
        progress.epoch += 1
        record = {"epoch": progress.epoch, "loss": loss, "lr": rate, **trainer.stage.note}
        if self._options.eval_every and (self._over() or progress.epoch % self._options.eval_every == 0):
            self._evaluate(record)
        for plugin in plugins:
            plugin.end_epoch()
        wish = self._stop is not None and self._stop.is_due()
        costs, stopping, failed = costs_of_epoch(trainer, wish, run_dir is not None and run_dir.failed)
        if failed:  # of an epoch before: no rank waits for the file of this one
            with trainer.comm.together("writing the run directory"):
                if run_dir is not None:
                    run_dir.settle()
        record.update(costs)
        every = self._options.checkpoint_every
        if stopping or self._done() or (every and progress.epoch % every == 0):
            with plugins.around(lambda each: each.checkpoint()):
                self._save(record)
        elif run_dir is not None:
            run_dir.append(record)
        for plugin in plugins:
            plugin.after_record(record)
        return record, stopping

    def _evaluate(self, record: Record) -> None:
        """Add the metrics to a record, and keep the state if its validation is the best so far."""
        trainer, best = self._trainer, self.progress.best
        record.update(trainer.evaluate())
        value = record["val"]
        if not math.isnan(value) and (best is None or trainer.evaluator.metric.better(value, best["val"])):
            self.progress.best = {key: record[key] for key in ("epoch", "train", "val", "test")}
            self.best_state = trainer.evaluated_state()
            for plugin in trainer.plugins:
                plugin.new_best()

    def _save(self, record: Record) -> None:
        """Write the record of an epoch, and a checkpoint. Collective."""
        trainer, run_dir, epoch = self._trainer, self._run_dir, self.progress.epoch
        groups: dict[str, Tensors] = {}
        for plugin in trainer.plugins:
            groups |= plugin.state(self._options.run_dir, epoch)
        with trainer.comm.together("writing the run directory"):
            if run_dir is not None:
                run_dir.append(record)
                run_dir.settle()
                progress = vars(self.progress)
                save_checkpoint(run_dir.path, trainer.model, trainer.optimizer, self.best_state, progress, groups)

    def _done(self) -> bool:
        """Whether the last stage is done."""
        return self.progress.stage + 1 == len(self._trainer.stages) and self._over()

    def _over(self) -> bool:
        """Whether the present stage is done: its epochs are, or validation has not got better for as long as it may."""
        progress, options = self.progress, self._trainer.stage.options
        if progress.epoch - progress.begun >= options.epochs:
            return True
        if not options.patience or progress.best is None:
            return False
        return progress.epoch - max(progress.best["epoch"], progress.begun) >= options.patience

    def _next_stage(self) -> None:
        """Leave a stage with its best parameters for the next one, which trains another predictor."""
        trainer, progress = self._trainer, self.progress
        if self.best_state is not None:
            trainer.model.load_state_dict(self.best_state)
        progress.stage, progress.begun = progress.stage + 1, progress.epoch
        trainer.begin_stage(progress.stage, progress.epoch)
        progress.best = self.best_state = None

    def _show(self, record: Record, pace: Pace, last: bool) -> None:
        left = sum(options.epochs for options in self._trainer.stages[self.progress.stage :])
        if text := pace.line(record, left - (self.progress.epoch - self.progress.begun), last):
            log.info("%s", text)


def costs_of_epoch(
    trainer: "Trainer", stop: bool = False, failed: bool = False
) -> tuple[dict[str, dict[str, dict[str, float]]], bool, bool]:
    """Reduce the costs of an epoch over all ranks. Collective.

    The wish to stop and the failure of rank 0's file travel with the costs, so neither takes a message of its own.

    Returns:
        ({'seconds', 'cpu', 'bytes', 'messages'} by phase or kind, each {max, mean, min, sum} over ranks; whether any
            rank has to stop; whether any rank failed to write).
    """
    (seconds, cpu), traffic = trainer.clock.take(), trainer.comm.ledger.take()
    costs: dict[tuple[str, str], float] = {("cpu", name): value for name, value in cpu.items()}
    costs |= {("seconds", phase): value for phase, value in seconds.items()}
    costs["seconds", "epoch"] = sum(seconds[phase] for phase in PHASES)
    for kind in KINDS:
        entry = traffic.get(kind, LedgerEntry())
        costs["seconds", f"{kind}_wait"] = entry.seconds_waiting
        costs["bytes", kind], costs["messages", kind] = entry.bytes_sent, entry.messages
    local = torch.tensor(list(costs.values()), dtype=torch.float64)
    total = trainer.comm.total(local).tolist()
    flags = torch.tensor([stop, failed], dtype=torch.float64)
    extremes = trainer.comm.allreduce_(torch.cat([local, -local, flags]), "metrics", "max").tolist()
    result: dict[str, dict[str, dict[str, float]]] = {"seconds": {}, "cpu": {}, "bytes": {}, "messages": {}}
    for index, (group, name) in enumerate(costs):
        if group in ("seconds", "cpu") or total[index]:
            exact = float if name.endswith("_seconds") or group == "seconds" else int
            most, least, whole = map(exact, (extremes[index], -extremes[index + len(costs)], total[index]))
            result[group][name] = {"max": most, "mean": total[index] / trainer.comm.size, "min": least, "sum": whole}
    return result, bool(extremes[-2]), bool(extremes[-1])
