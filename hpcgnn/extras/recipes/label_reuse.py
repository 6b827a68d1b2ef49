"""Labels of training nodes as inputs (`--label-reuse`), with masking: Shi et al., IJCAI'21; Wang et al., 2021.

Each step draws some training nodes, whose labels become input features, and takes the loss on the others. So no node's
loss sees its own label. An evaluation shows the labels of all training nodes. The draw is a function of seed, epoch and
original node id, and so equal on every number of ranks.
"""

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch

from hpcgnn import kernels
from hpcgnn.engine.hooks import Plugin
from hpcgnn.errors import ConfigError
from hpcgnn.extras.recipes.hops import show_labels
from hpcgnn.ops.draws import Purpose, Randomness
from hpcgnn.option_fields import option
from hpcgnn.options.inputs import MadeColumns, inputs_of
from hpcgnn.options.task import TaskConfig
from hpcgnn.plan.run_plan import RunPlan
from hpcgnn.tasks.labels import Objective
from hpcgnn.tasks.registry import TASKS

if TYPE_CHECKING:
    from hpcgnn.engine.trainer import Trainer

_TILE = 1 << 20


@dataclass(frozen=True, kw_only=True)
class LabelReuseConfig(TaskConfig):
    """The option `label_reuse`."""

    label_reuse: float = option(
        0.0,
        "share of training nodes with labels as inputs; 0: none",
        details="Drawn anew in each epoch; the loss is taken on the others. 0.5 is usual.",
        least=0.0,
        below=1.0,
        on_resume="same",
    )


class ReusedLabels(Plugin):
    """The label columns of owned nodes, (n_p, C): one-hot for nodes with a shown label, zeros for others.

    At first, all training nodes show their labels.

    Attributes:
        share: probability of drawing a training node.
    """

    columns: torch.Tensor

    def __init__(self, trainer: "Trainer", share: float) -> None:
        local, self._trainer, self._share = trainer.local, trainer, share
        self._where = torch.nonzero(local.mask("train")).squeeze(1)
        self._labels, self._ids = local.labels[self._where], local.original_id[self._where]
        self.columns = torch.zeros(len(local.original_id), local.num_classes, dtype=trainer.plan.spec.dtype)
        self.give_all()

    def before_step(self) -> None:
        """Give the labels of the nodes that are drawn; the loss is taken on the others."""
        cast(Objective, self._trainer.objective).leave_out(self.draw(self._trainer.random))

    def evaluation(self) -> AbstractContextManager[None]:
        """With the labels of all training nodes."""
        self.give_all()
        return contextlib.nullcontext()

    def give_all(self) -> None:
        """Give the labels of all training nodes."""
        self._give(torch.ones(len(self._where), dtype=torch.bool))

    def draw(self, random: Randomness) -> torch.Tensor:
        """Show the labels of the nodes drawn in this step.

        Returns:
            bool (m_p,): the drawn nodes among the owned training nodes.
        """
        key, below = random.key(Purpose.REUSED_LABEL, 0), round(self._share * 2**32)
        tiles = [kernels.random_words(key, ids, 1)[:, 0] < below for ids in self._ids.split(_TILE)]
        given = torch.cat(tiles)
        self._give(given)
        return given

    def _give(self, given: torch.Tensor) -> None:
        show_labels(self.columns.zero_(), self._where[given], self._labels[given])


def make(trainer: "Trainer", learns: bool) -> ReusedLabels | None:
    """The plugin of a Trainer, if it has `--label-reuse`. Raises ConfigError, on all ranks, where labels are no
    classes.
    """
    config = trainer.plan.config
    if not flag(config.task):
        return None
    task = TASKS[config.task.task]
    if task.probabilities is None:
        raise ConfigError.on_all(
            f"{flag(config.task)} gives classes as inputs, and the labels of the graph are for {task.name} "
            f"({task.said}); leave it out"
        )
    return ReusedLabels(trainer, cast(LabelReuseConfig, config.task).label_reuse)


def flag(options: TaskConfig) -> str:
    """The option as it was given, or ''."""
    share = cast(LabelReuseConfig, options).label_reuse
    return f"--label-reuse {share:g}" if share else ""


#: A column for each class.
COLUMNS = MadeColumns(flag, lambda classes: classes)


def rule(of: RunPlan) -> Iterator[str]:
    """Labels as inputs are no word of --features."""
    if inputs_of(of.config.task.features).made:
        yield (
            f"--features {of.config.task.features}: labels become inputs by --label-reuse, with the share of the "
            "training nodes that are given theirs in an epoch, such as 0.5"
        )
