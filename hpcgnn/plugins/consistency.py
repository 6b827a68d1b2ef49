"""Consistency with a mean teacher (`--consistency`): SCR, Zhang et al., arXiv 2112.04319.

The teacher is an average of the parameters over the steps before. It predicts all nodes without dropout, in one more
forward pass of each step. The loss gets a term: the mean squared difference between the probabilities of the model and
those of the teacher, sharpened, over the nodes that are no training nodes and of whose class the teacher is confident.
It begins after `consistency_warmup` epochs, and the average with it.
The mean is over all ranks' nodes, so the curve does not depend on the number of ranks.
"""

from typing import TYPE_CHECKING, cast

import torch

from hpcgnn.engine.hooks import Plugin, Tensors
from hpcgnn.plugins.averages import Averages
from hpcgnn.tasks.objective import Objective

if TYPE_CHECKING:
    from hpcgnn.engine.trainer import Trainer

#: Probabilities of the teacher are raised to this power.
SHARPNESS = 2.0


class Consistency(Plugin):
    """The teacher and its term of the loss."""

    group = "teacher"

    def __init__(self, trainer: "Trainer") -> None:
        options, self._trainer = trainer.plan.config.task, trainer
        self._weight, self._confidence = options.consistency, options.consistency_confidence
        self._warmup = options.consistency_warmup
        self._teacher = Averages(trainer.model, options.consistency_decay)
        self._others = ~trainer.local.mask("train")
        self._rows, self._wanted, self._count = torch.zeros(0, dtype=torch.int64), torch.zeros(0, 0), 0.0
        self._begun = False

    def held(self) -> object:
        return self._teacher.held(), self._rows, self._wanted

    def before_step(self) -> None:
        """The teacher's predictions. Collective."""
        trainer, model = self._trainer, self._trainer.model
        if not self._on:
            return
        if not self._begun:  # the objective is made after the plugins
            cast(Objective, trainer.objective).terms.append(self.term)
            self._begun = True
        model.eval()
        with torch.no_grad(), self._teacher.evaluation():
            probabilities = model(trainer.graph).float().softmax(1)
        model.train()
        sure = self._others & (probabilities.amax(1) >= self._confidence)
        self._rows = torch.nonzero(sure).squeeze(1)
        sharp = probabilities[self._rows] ** SHARPNESS
        self._wanted = sharp / sharp.sum(1, keepdim=True)
        own = torch.tensor([len(self._rows)], dtype=torch.float64)
        self._count = float(trainer.comm.total(own, "control"))

    def term(self, logits: torch.Tensor) -> torch.Tensor:
        """This rank's share of the term: a scalar. logits: (n_p, C) of all own nodes."""
        apart = logits[self._rows].softmax(1) - self._wanted.to(logits.dtype)
        return self._weight * apart.square().sum() / max(self._count, 1.0)

    def after_step(self, factor: float) -> None:
        if self._on:
            self._teacher.after_step(factor)

    @property
    def _on(self) -> bool:
        """Whether the epoch has the term."""
        return self._trainer.random.epoch >= self._warmup

    def tensors(self) -> Tensors:
        """As of `Averages`."""
        return self._teacher.tensors()

    def restore(self, tensors: Tensors) -> None:
        self._teacher.restore(tensors)


def make(trainer: "Trainer", learns: bool) -> Consistency | None:
    """The plugin of a Trainer, if it has `--consistency`."""
    return Consistency(trainer) if learns and trainer.plan.config.task.consistency else None
