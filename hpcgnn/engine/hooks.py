"""Optional behaviour of a run. The engine calls these hooks at fixed places and knows no plugin by name.

A plugin is one file: a subclass of `Plugin`, and a function in the list of plugins/registry.py that makes it if the
configuration needs it. All ranks call all hooks alike, so hooks may be collective.
"""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from hpcgnn.engine.clock import Watch

if TYPE_CHECKING:
    from hpcgnn.engine.trainer import Trainer

Kind = TypeVar("Kind", bound="Plugin")
Tensors = dict[str, torch.Tensor]


class Plugin:
    """A plugin that does nothing.

    Attributes:
        columns: (n_p, D), input columns of owned nodes that change from step to step, or None.
        group: name of the plugin's tensors in a checkpoint, '' for none.
        watch: gets the phases of the clock, and before them `load` and `plan`; None for a plugin that needs none.
    """

    columns: torch.Tensor | None = None
    group = ""
    watch: Watch | None = None

    def loaded(self) -> None:
        """After this rank's share of the graph is read, before the trainer is made."""

    def run(self, trainer: "Trainer") -> AbstractContextManager[None]:
        """Around all epochs of a job."""
        return contextlib.nullcontext()

    def held(self) -> object:
        """Return the object that the memory account counts with the parameters and the optimizer."""
        return ()

    def later_bytes(self) -> int:
        """Bytes that the plugin does not hold yet and will hold after the first best epoch."""
        return 0

    def begin_epoch(self, learning_rate: float) -> None:
        """Before the first step of an epoch."""

    def before_step(self) -> None:
        """Before the forward pass of a step."""

    def forward(self) -> AbstractContextManager[None]:
        """Around the forward pass of a training step."""
        return contextlib.nullcontext()

    def gradient_square(self) -> torch.Tensor | None:
        """The squared norm of the gradients of this rank's own parameters, float64 (1,); None: there are none."""
        return None

    def after_step(self, factor: float) -> None:
        """After a step of the model's parameters. factor: by which clipping multiplied the gradients."""

    def evaluation(self) -> AbstractContextManager[None]:
        """Around an evaluation, and around copies of the parameters that are evaluated."""
        return contextlib.nullcontext()

    def new_best(self) -> None:
        """After an evaluation whose validation metric is the best so far."""

    def take_best(self) -> None:
        """After the run, when the model has taken the best epoch's state for a last evaluation."""

    def epoch(self, number: int) -> AbstractContextManager[None]:
        """Around an epoch. number: from 1."""
        return contextlib.nullcontext()

    def end_epoch(self) -> None:
        """After the last step and the evaluation of an epoch, before its costs are gathered."""

    def checkpoint(self) -> AbstractContextManager[None]:
        """Around the writing of a checkpoint."""
        return contextlib.nullcontext()

    def finish_epoch(self, number: int, last: bool) -> None:
        """After the record of epoch `number`. last: no further epoch follows in this job."""

    def after_record(self, record: dict[str, Any]) -> None:
        """After an epoch. record: its line of metrics.jsonl, the same on all ranks."""

    def record(self) -> dict[str, Any]:
        """{name: value} for the record of this rank, after `run`."""
        return {}

    def summary(self, ranks: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """{name: value} for summary.json. Rank 0. ranks: the records of the ranks, with the values of `record`."""
        return {}

    def tensors(self) -> Tensors:
        """Tensors that rank 0 writes to the group `group` of a checkpoint."""
        return {}

    def restore(self, tensors: Tensors) -> None:
        """Continue from saved `tensors`, {} if the checkpoint lacks the group."""

    def save(self, run_dir: str | Path, epoch: int) -> None:
        """Write the plugin's own files, before the checkpoint that they belong to."""

    def load(self, run_dir: str | Path, epoch: int, best_only: bool = False) -> None:
        """Continue from the file of `save`.

        Args:
            run_dir: the run directory.
            epoch: number of finished epochs.
            best_only: load for an evaluation of the best epoch.
        """


class Plugins(Plugin):
    """The plugins of a run, called in their order."""

    def __init__(self, plugins: Iterable[Plugin] = ()) -> None:
        self._all = list(plugins)

    def __iter__(self) -> Iterator[Plugin]:
        return iter(self._all)

    def add(self, plugin: Plugin) -> None:
        """Append a plugin."""
        self._all.append(plugin)

    def find(self, kind: type[Kind]) -> Kind | None:
        """The plugin of a class, or None."""
        return next((each for each in self._all if isinstance(each, kind)), None)

    def loaded(self) -> None:
        for each in self._all:
            each.loaded()

    def run(self, trainer: "Trainer") -> AbstractContextManager[None]:
        return _together(each.run(trainer) for each in self._all)

    def held(self) -> object:
        return [each.held() for each in self._all]

    def later_bytes(self) -> int:
        return sum(each.later_bytes() for each in self._all)

    def begin_epoch(self, learning_rate: float) -> None:
        for each in self._all:
            each.begin_epoch(learning_rate)

    def before_step(self) -> None:
        for each in self._all:
            each.before_step()

    def forward(self) -> AbstractContextManager[None]:
        return _together(each.forward() for each in self._all)

    def gradient_square(self) -> torch.Tensor | None:
        squares = [square for each in self._all if (square := each.gradient_square()) is not None]
        return torch.stack(squares).sum(0) if squares else None

    def after_step(self, factor: float) -> None:
        for each in self._all:
            each.after_step(factor)

    def evaluation(self) -> AbstractContextManager[None]:
        return _together(each.evaluation() for each in self._all)

    def new_best(self) -> None:
        for each in self._all:
            each.new_best()

    def take_best(self) -> None:
        for each in self._all:
            each.take_best()

    def epoch(self, number: int) -> AbstractContextManager[None]:
        return _together(each.epoch(number) for each in self._all)

    def end_epoch(self) -> None:
        for each in self._all:
            each.end_epoch()

    def checkpoint(self) -> AbstractContextManager[None]:
        return _together(each.checkpoint() for each in self._all)

    def finish_epoch(self, number: int, last: bool) -> None:
        for each in self._all:
            each.finish_epoch(number, last)

    def after_record(self, record: dict[str, Any]) -> None:
        for each in self._all:
            each.after_record(record)

    def record(self) -> dict[str, Any]:
        return {name: value for each in self._all for name, value in each.record().items()}

    def summary(self, ranks: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return {name: value for each in self._all for name, value in each.summary(ranks).items()}

    def groups(self) -> dict[str, Tensors]:
        """{group: {name: tensor}} of a checkpoint."""
        return {each.group: each.tensors() for each in self._all if each.group}

    def save(self, run_dir: str | Path, epoch: int) -> None:
        for each in self._all:
            each.save(run_dir, epoch)

    def load(self, run_dir: str | Path, epoch: int, best_only: bool = False) -> None:
        for each in self._all:
            each.load(run_dir, epoch, best_only)


@contextlib.contextmanager
def _together(contexts: Iterable[AbstractContextManager[None]]) -> Iterator[None]:
    """The body inside all contexts, the first outermost."""
    with contextlib.ExitStack() as stack:
        for each in contexts:
            stack.enter_context(each)
        yield
