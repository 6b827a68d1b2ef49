"""The loss: a mean over the training nodes of the whole graph, so that no rank's share changes its meaning."""

from functools import cached_property
from typing import cast

import torch

from hpcgnn.comm.communicator import Communicator
from hpcgnn.errors import GraphError
from hpcgnn.graph.local import LocalGraph
from hpcgnn.memory.arena import Arena
from hpcgnn.options import TaskConfig
from hpcgnn.tasks.base import LabelTask, Scale
from hpcgnn.tasks.registry import TASKS, fitting_loss


class Objective:
    """The loss of the graph's task. options: which it is; scale: by which the targets of regression are standardised,
    or None. Made collectively.

    Raises GraphError on all ranks if no node of the graph is a training node. A rank without any takes part with a
    zero.
    """

    def __init__(
        self,
        local: LocalGraph,
        comm: Communicator,
        arena: Arena,
        options: TaskConfig = TaskConfig(),
        scale: Scale | None = None,
    ) -> None:
        self._rows, self._num_owned = torch.nonzero(local.mask("train")).squeeze(1), local.num_owned
        self._arena, self._scale, self._labels = arena, scale, local.labels[self._rows]
        self._task = cast(LabelTask, TASKS[local.task if options.task == "auto" else options.task]).configured(
            options, self._labels, local.num_classes, comm
        )
        self._loss, self._comm = fitting_loss(options.loss, self._task), comm
        self._counted: torch.Tensor | None = None
        # By the tensors themselves: a schedule gives the same few in every epoch.
        self._among: dict[torch.Tensor, tuple[torch.Tensor, torch.Tensor]] = {}
        counts = torch.tensor([len(self._rows), self._task.weight(self._labels)], dtype=torch.float64)
        num_train, self._weight = comm.total(counts, "plan").tolist()
        self.num_train = int(num_train)
        if self.num_train == 0:
            raise GraphError.on_all(
                "the training split is empty: no node is marked train and labelled; give the graph a split when "
                "importing it (--train FRACTION, or a split file)"
            )

    @cached_property
    def _targets(self) -> torch.Tensor:
        """Made when they are first asked for: a checkpoint may have brought the numbers of the scale until then."""
        return self._task.targets(self._labels, self._scale)

    def leave_out(self, given: torch.Tensor) -> None:
        """Take the loss on the training nodes that are not among some: bool (m_p,), of own training nodes. It is 0
        where none is left. Collective.
        """
        self._counted = torch.nonzero(~given).squeeze(1)
        weight = torch.tensor([self._task.weight(self._labels[self._counted])], dtype=torch.float64)
        self._weight = float(self._comm.total(weight, "control")) or 1.0

    @cached_property
    def _place(self) -> torch.Tensor:
        """int64 (n_p,): the number of each own node among the training nodes, -1 for others."""
        place = torch.full((self._num_owned,), -1)
        place[self._rows] = torch.arange(len(self._rows))
        return place

    def _trained_among(self, nodes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(int64: which of some own nodes are for training, their targets); known again for the same tensor."""
        if nodes not in self._among:
            place = self._place[nodes]
            rows = torch.nonzero(place >= 0).squeeze(1)
            self._among[nodes] = rows, self._targets[place[rows]]
        return self._among[nodes]

    def local_loss(self, logits: torch.Tensor, nodes: torch.Tensor | None = None) -> torch.Tensor:
        """This rank's share of the mean loss: a scalar of the logits' dtype; the shares of all ranks add up to the
        loss.

        logits: (n_p, C) of own nodes, or of the own training nodes alone. nodes: int64 (b,), if the logits are those of
        some own nodes: their terms of the mean over all training nodes.
        """
        rows, targets, counted = None if len(logits) == len(self._rows) else self._rows, self._targets, self._counted
        if nodes is not None:
            rows, targets = self._trained_among(nodes)
        if counted is not None:
            rows, targets = counted if rows is None else rows[counted], targets[counted]
        return self._task.loss(logits, rows, targets, self._loss, self._arena) / self._weight
