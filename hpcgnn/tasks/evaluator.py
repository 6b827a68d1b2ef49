"""Exact evaluation: the whole graph, every rank its own rows, by the same streams as training. No rank holds it all."""

import logging
import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch

from hpcgnn.comm.communicator import Communicator
from hpcgnn.graph.local import LocalGraph
from hpcgnn.graphfile.storage import SPLITS
from hpcgnn.nn.graph import Graph
from hpcgnn.tasks.base import LabelTask, Metric, Scale
from hpcgnn.tasks.registry import TASKS, fitting_metric, metrics_of

log = logging.getLogger("hpcgnn")


class Judge:
    """Whoever scores a model's outputs: it runs the model as it is evaluated, and books the traffic as `evaluation`."""

    _comm: Communicator

    def __call__(
        self, model: torch.nn.Module, graph: Graph, judge: Callable[[torch.Tensor], dict[str, Any]] | None = None
    ) -> dict[str, Any]:
        """Return what `judge`, by default `scores`, makes of the model's outputs. Collective."""
        model.eval()
        with torch.no_grad(), self._comm.ledger.booked_as("evaluation"):
            result = (judge or self.scores)(model(graph))
        model.train()
        return result

    def scores(self, outputs: torch.Tensor) -> dict[str, Any]:
        """Return the metrics of a model's outputs of owned nodes. Collective."""
        raise NotImplementedError

    def report(self, outputs: torch.Tensor, names: Sequence[str]) -> dict[str, Any]:
        """Return `scores`, and all else that files have of an evaluation. names: of the classes, or empty."""
        return self.scores(outputs)


class Evaluator(Judge):
    """Evaluates a model on all splits. The ledger books its traffic as `evaluation`. Made collectively.

    Args:
        metric: name of a metric of the graph's task, or `auto`.
        scale: standardisation of the model's targets, or None.
        task: its name; '' for that of the kind of labels.

    Attributes:
        counts: {split: nodes with a label, over all ranks}.
        name, metric: the metric (see tasks/base.py).

    Raises:
        ConfigError: on all ranks, for a metric that does not fit.
    """

    def __init__(
        self, local: LocalGraph, metric: str, comm: Communicator, scale: Scale | None = None, task: str = ""
    ) -> None:
        self._labels, self._comm, self._scale = local.labels, comm, scale
        self.task, outputs = cast(LabelTask, TASKS[task or local.task]), local.num_classes
        self._masks = {split: local.mask(split) for split in SPLITS}
        counts = comm.total(torch.tensor([int(mask.sum()) for mask in self._masks.values()]), "plan").tolist()
        self.counts: dict[str, int] = dict(zip(self._masks, counts, strict=True))
        self._told: set[str] = set()
        self.name, self._all = fitting_metric(metric, self.task, outputs), metrics_of(self.task, outputs)
        self.metric = self.task.metrics[self.name]

    def in_units(self, outputs: torch.Tensor) -> torch.Tensor:
        """A model's outputs (n_p, C) in the units of the labels: float64 where targets were standardised."""
        return outputs if self._scale is None else self._scale.in_units(outputs)

    def scores(self, outputs: torch.Tensor) -> dict[str, float]:
        """{'train': value, 'val': value, 'test': value} of a model's outputs (n_p, C) of own nodes; NaN where the
        metric is not defined. Collective.
        """
        return self._told_of(self._by(self.metric, self.in_units(outputs)))

    def report(self, outputs: torch.Tensor, names: Sequence[str]) -> dict[str, Any]:
        """Return {**`scores`, 'metrics': {split: {metric: value of all that fit}}, and the task's tables by class:
        {table: {split: rows}}}. Collective.
        """
        outputs = self.in_units(outputs)
        values = {name: self._by(metric, outputs) for name, metric in self._all.items()}
        result: dict[str, Any] = {
            **self._told_of(values[self.name]),
            "metrics": {split: {name: each[split] for name, each in values.items()} for split in self._masks},
        }
        for split, mask in self._masks.items():
            for table, rows in self.task.by_class(outputs, self._labels, mask, self._comm, names).items():
                result.setdefault(table, {})[split] = rows
        return result

    def _by(self, metric: Metric, outputs: torch.Tensor) -> dict[str, float]:
        """{split: value of a metric} of outputs in the units of the labels."""
        return {split: metric.score(outputs, self._labels, mask, self._comm) for split, mask in self._masks.items()}

    def _told_of(self, found: dict[str, float]) -> dict[str, float]:
        """The values of the metric, after one warning for a split where it is not defined."""
        for split, value in found.items():
            if math.isnan(value) and self.counts[split] and split not in self._told and self._comm.rank == 0:
                self._told.add(split)
                what = self.name, self.counts[split], split, self.metric.undefined
                log.warning("the %s of the %d %s nodes is not defined: %s", *what)
        return found
