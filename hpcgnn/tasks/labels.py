"""Tasks that are learned from labels of nodes: the mean loss over the training nodes of the whole graph, so that no
rank's share changes its meaning, and metrics over the nodes of each split.

An evaluation is exact: it covers the whole graph, every rank its own rows, by the same streams as training. No rank
holds it all.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Protocol

import torch

from hpcgnn.comm.communicator import Communicator
from hpcgnn.errors import GraphError
from hpcgnn.graph.local import LocalGraph
from hpcgnn.graphfile.storage import SPLITS
from hpcgnn.memory.arena import Arena
from hpcgnn.options import TaskConfig
from hpcgnn.tasks.base import Judge, Loss, Metric, Scale, Setting, Task
from hpcgnn.tasks.metrics import rows_by_class

Counts = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, Communicator], torch.Tensor]


class LabelTask(Task, Protocol):
    """A task that is learned from labels of nodes."""

    #: The counts of the classes (metrics.py), of what a Score takes; None where there are no classes. Collective.
    counts: Counts | None = None

    def weight(self, labels: torch.Tensor) -> int:
        """Return the divisor that, summed over ranks, turns the sum of these labels' losses into a mean."""
        return labels.numel()

    def targets(self, labels: torch.Tensor, scale: Scale | None) -> torch.Tensor:
        """Return the targets of the loss, from the labels of the training nodes."""
        return labels

    def loss(
        self, outputs: torch.Tensor, rows: torch.Tensor | None, targets: torch.Tensor, name: str, arena: Arena
    ) -> torch.Tensor:
        """The sum over rows of the loss `name`: a scalar, differentiable in outputs (n, C). rows: int64 (m,), None for
        all; targets: of these rows.
        """

    def scale(self, on: Setting, learns: bool) -> Scale | None:
        """The Scale of real-valued targets, made a part of the model; None where there is none. Collective."""
        return None

    def judges(self, on: Setting, learns: bool) -> tuple[Judge, Loss | None]:
        config, scale = on.config, self.scale(on, learns)
        evaluator = Evaluator(self, on.local, config.run.metric, on.comm, scale)
        if not learns:
            return evaluator, None
        given = on.comm, on.buffers.arena, config.task, scale
        evaluator.loss = Objective(self, on.local, *given, split="val")
        return evaluator, Objective(self, on.trained_on, *given)


class Objective(Loss):
    """The loss of a task on the nodes of a split. options: which of its losses; scale: by which the targets of
    regression are standardised, or None. Made collectively.

    Raises GraphError on all ranks if no node of the graph is a training node. A rank without any takes part with a
    zero.
    """

    def __init__(
        self,
        task: LabelTask,
        local: LocalGraph,
        comm: Communicator,
        arena: Arena,
        options: TaskConfig = TaskConfig(),
        scale: Scale | None = None,
        split: str = "train",
    ) -> None:
        self._rows, self._num_owned = torch.nonzero(local.mask(split)).squeeze(1), local.num_owned
        self._arena, self._scale, self._labels = arena, scale, local.labels[self._rows]
        self._task, self._loss, self._comm = task, task.fitting_loss(options.loss), comm
        self._counted: torch.Tensor | None = None
        # By the tensors themselves: a schedule gives the same few in every epoch.
        self._among: dict[torch.Tensor, tuple[torch.Tensor, torch.Tensor]] = {}
        counts = torch.tensor([len(self._rows), self._task.weight(self._labels)], dtype=torch.float64)
        num_train, self._weight = comm.total(counts, "plan").tolist()
        self.num_train = int(num_train)
        if self.num_train == 0 and split == "train":
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


class Evaluator(Judge):
    """Evaluates a model on all splits. The ledger books its traffic as `evaluation`. Made collectively.

    Args:
        metric: name of a metric of the task, or `auto`.
        scale: standardisation of the model's targets, or None.

    Raises:
        ConfigError: on all ranks, for a metric that does not fit.
    """

    task: LabelTask
    #: The loss of training, on the validation nodes; None where nothing is trained.
    loss: Objective | None = None

    def __init__(
        self, task: LabelTask, local: LocalGraph, metric: str, comm: Communicator, scale: Scale | None = None
    ) -> None:
        self._labels, self._comm, self._scale = local.labels, comm, scale
        self.task, outputs = task, local.num_classes
        self._together = torch.stack([local.mask(split) for split in SPLITS])
        self._masks = dict(zip(SPLITS, self._together, strict=True))
        self.counts = dict(zip(SPLITS, comm.total(self._together.sum(1), "plan").tolist(), strict=True))
        self.name, self._all = task.fitting_metric(metric, outputs), task.metrics_of(outputs)
        self.metric = self.task.metrics[self.name]

    def in_units(self, outputs: torch.Tensor) -> torch.Tensor:
        """A model's outputs (n_p, C) in the units of the labels: float64 where targets were standardised."""
        return outputs if self._scale is None else self._scale.in_units(outputs)

    def scores(self, outputs: torch.Tensor) -> dict[str, float]:
        """{'train': value, 'val': value, 'test': value} of a model's outputs (n_p, C) of own nodes; NaN where the
        metric is not defined. In training also 'val_loss', the mean loss of the validation nodes, likewise. Collective.
        """
        found = self._by(self.metric, self.in_units(outputs))
        if self.loss is not None:
            found["val_loss"] = float(self._comm.total(self.loss.local_loss(outputs).double()))
        return found

    def report(self, outputs: torch.Tensor, names: Sequence[str]) -> dict[str, Any]:
        """Return {**`scores`, 'metrics': {split: {metric: value of all that fit}}, and for classes 'classes': {split:
        rows of a table}}. Collective.
        """
        outputs, counts = self.in_units(outputs), self.task.counts
        values = {name: self._by(metric, outputs) for name, metric in self._all.items()}
        result: dict[str, Any] = {
            **values[self.name],
            "metrics": {split: {name: each[split] for name, each in values.items()} for split in self._masks},
        }
        if counts is not None:
            result["classes"] = {
                split: rows_by_class(counts(outputs, self._labels, mask, self._comm), names)
                for split, mask in self._masks.items()
            }
        return result

    def _by(self, metric: Metric, outputs: torch.Tensor) -> dict[str, float]:
        """{split: value of a metric} of outputs in the units of the labels."""
        if metric.together is not None:
            values = metric.together(outputs, self._labels, self._together, self._comm)
            return dict(zip(SPLITS, values, strict=True))
        return {split: metric.score(outputs, self._labels, mask, self._comm) for split, mask in self._masks.items()}
