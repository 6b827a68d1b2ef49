"""Dist-GNN's steps, for `--plugin` with `--optimizer adamw`: second beta .95, the rate grows to --lr."""

from torch.optim.adamw import adamw

from hpcgnn.engine.hooks import Plugin
from hpcgnn.plugins.registry import TRAINER_PLUGINS


def rule(*tensors, **rates):
    adamw(*tensors, **{**rates, "beta2": 0.95})


class Ramp(Plugin):
    def __init__(self, trainer):
        self._trainer = trainer

    def before_step(self):
        options, optimizer = self._trainer.plan.config.optim, self._trainer.optimizer
        begun = (self._trainer.random.epoch & 0xFFFFFFFF) + 1
        optimizer.rule = rule
        optimizer.set_learning_rate(options.lr * begun / options.epochs)


TRAINER_PLUGINS.register("ramp", lambda trainer, learns: Ramp(trainer) if learns else None)
