"""An exponential moving average of the parameters (`--ema`) for evaluation: less noise than the last step's parameters.

After the first step the average equals the parameters. After each later step it keeps a part `decay` of itself and
takes the rest from the parameters. This is torch's `AveragedModel` with `get_ema_multi_avg_fn`. Running statistics of
norms come from the model. All ranks hold equal parameters, and so the same average, without a message.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from hpcgnn.engine.checkpoint import Checkpoint, Tensors
from hpcgnn.engine.hooks import Plugin
from hpcgnn.errors import CheckpointError

if TYPE_CHECKING:
    from hpcgnn.engine.trainer import Trainer

# Of their tensors in a checkpoint.
GROUP = "averaged_model"


class Averages(Plugin):
    """The average of a model's parameters. decay: in (0, 1)."""

    def __init__(self, model: torch.nn.Module, decay: float) -> None:
        self._parameters, self._decay = dict(model.named_parameters()), decay
        self._averages: dict[str, torch.Tensor] = {}

    def held(self) -> object:
        return self._averages

    @torch.no_grad()
    def after_step(self, factor: float) -> None:
        """Take a step of the parameters in."""
        if not self._averages:
            self._averages = {name: parameter.detach().clone() for name, parameter in self._parameters.items()}
            return
        for name, average in self._averages.items():
            average.lerp_(self._parameters[name], 1 - self._decay)

    def take_best(self) -> None:
        """The best state has the averages as its parameters already."""
        self._averages = {}

    @contextlib.contextmanager
    def evaluation(self) -> Iterator[None]:
        """In the body the model has the averages as its parameters, which nothing there may change."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    def _exchange(self) -> None:
        for name, average in self._averages.items():
            parameter = self._parameters[name]
            self._averages[name], parameter.data = parameter.data, average

    def state(self, run_dir: str | Path, epoch: int) -> dict[str, Tensors]:
        """The averages; none before the first step."""
        return {GROUP: dict(self._averages)}

    def load(self, checkpoint: Checkpoint, best_only: bool = False) -> None:
        """Continue from saved averages, or begin with the next step. Raises CheckpointError if they do not fit."""
        state = checkpoint.group(GROUP)
        wanted = {name: parameter.shape for name, parameter in self._parameters.items()}
        if state and {name: tensor.shape for name, tensor in state.items()} != wanted:
            raise CheckpointError("the averaged parameters of the checkpoint do not fit this model; it is damaged")
        self._averages = {name: tensor.to(self._parameters[name].dtype) for name, tensor in state.items()}


def make(trainer: "Trainer", learns: bool) -> Averages | None:
    """The plugin of a Trainer, if it has `--ema`."""
    decay = trainer.plan.config.optim.ema
    return Averages(trainer.model, decay) if learns and decay else None
