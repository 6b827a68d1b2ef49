"""Optional behaviour of a run. The engine calls these hooks at fixed places and knows no plugin by name.

A plugin is one file: a subclass of `Plugin`, and a function in the list of plugins/registry.py that makes it if
the configuration needs it. All ranks call all hooks alike, so hooks may be collective.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from hpcgnn.engine.checkpoint import Checkpoint, Tensors

if TYPE_CHECKING:
    from hpcgnn.engine.trainer import Trainer


class Plugin:
    """A plugin that does nothing.

    Attributes:
        columns: (n_p, D), input columns of owned nodes that change from step to step, or None.
    """

    columns: torch.Tensor | None = None

    def watch(self, phase: str) -> AbstractContextManager[None]:
        """Around a phase of the clock, and before them around `load` and `plan`; of a job's plugins alone."""
        return contextlib.nullcontext()

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

    def after_record(self, record: dict[str, Any]) -> None:
        """After an epoch. record: its line of metrics.jsonl, the same on all ranks."""

    def record(self) -> dict[str, Any]:
        """{name: value} for the record of this rank, after `run`."""
        return {}

    def summary(self, ranks: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """{name: value} for summary.json. Rank 0. ranks: the records of the ranks, with the values of `record`."""
        return {}

    def state(self, run_dir: str | Path, epoch: int) -> dict[str, Tensors]:
        """{group: {name: tensor}}, which rank 0 writes to the checkpoint after `epoch` epochs. Tensors that differ from
        rank to rank go to files of the plugin's own beside it, which the method writes.
        """
        return {}

    def load(self, checkpoint: Checkpoint, best_only: bool = False) -> None:
        """Continue from what `state` gave. best_only: for an evaluation of the best epoch."""


class Plugins(list[Plugin]):
    """The plugins of a run, called in their order."""

    @contextlib.contextmanager
    def around(self, enter: Callable[[Plugin], AbstractContextManager[None]]) -> Iterator[None]:
        """The body inside enter(plugin) of all plugins, the first outermost."""
        with contextlib.ExitStack() as stack:
            for each in self:
                stack.enter_context(enter(each))
            yield
