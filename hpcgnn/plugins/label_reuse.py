"""Labels of training nodes as inputs (`--label-reuse`), with masking: Shi et al., IJCAI'21; Wang et al., 2021.

In each step some training nodes, drawn anew, have their labels among their features, and the loss is taken on the
others, so that no node's loss sees its own label. In an evaluation all training nodes have theirs. Who is drawn is a
function of seed, epoch and original node id, and so the same on every number of ranks.
"""

import contextlib
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, cast

import torch

from hpcgnn import kernels
from hpcgnn.engine.hooks import Plugin
from hpcgnn.ops.draws import Purpose, Randomness
from hpcgnn.tasks.objective import Objective

if TYPE_CHECKING:
    from hpcgnn.engine.trainer import Trainer

_TILE = 1 << 20


class ReusedLabels(Plugin):
    """The columns of own nodes, (n_p, C): the label as 0 and 1 of nodes whose label is given, zeros of others; at
    first all training nodes' are. share: the probability that a training node is drawn.
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
        """Give those of the nodes that are drawn in the present step. Returns which: bool (m_p,), of the own training
        nodes.
        """
        key, below = random.key(Purpose.REUSED_LABEL, 0), round(self._share * 2**32)
        tiles = [kernels.random_words(key, ids, 1)[:, 0] < below for ids in self._ids.split(_TILE)]
        given = torch.cat(tiles)
        self._give(given)
        return given

    def _give(self, given: torch.Tensor) -> None:
        columns = self.columns
        columns.zero_()
        where, labels = self._where[given], self._labels[given]
        if labels.dim() == 1:
            columns[where, labels] = 1
        else:
            columns[where] = labels.to(columns.dtype)


def make(trainer: "Trainer", learns: bool) -> ReusedLabels | None:
    """The plugin of a Trainer, if it has `--label-reuse`."""
    share = trainer.plan.config.task.label_reuse
    return ReusedLabels(trainer, share) if share else None
