"""Exact evaluation: the whole graph, every rank its own rows, by the same streams as training. No rank holds it all."""

import logging
import math
from typing import Any

import torch

from hpcgnn.comm.communicator import Communicator
from hpcgnn.graph.local import LocalGraph
from hpcgnn.graphfile.storage import SPLITS
from hpcgnn.nn.graph import Graph
from hpcgnn.tasks.base import Scale
from hpcgnn.tasks.registry import TASKS, fitting_metric

log = logging.getLogger("hpcgnn")


class Judge:
    """Whoever scores a model's outputs: it runs the model as it is evaluated, and books the traffic as `evaluation`."""

    _comm: Communicator

    def __call__(self, model: torch.nn.Module, graph: Graph) -> dict[str, Any]:
        """See `scores`. Collective."""
        model.eval()
        with torch.no_grad(), self._comm.ledger.booked_as("evaluation"):
            result = self.scores(model(graph))
        model.train()
        return result

    def scores(self, outputs: torch.Tensor) -> dict[str, Any]:
        """Return the metrics of a model's outputs of owned nodes. Collective."""
        raise NotImplementedError


class Evaluator(Judge):
    """Evaluates a model on all splits. The ledger books its traffic as `evaluation`. Made collectively.

    Args:
        metric: name of a metric of the graph's task, or `auto`.
        scale: standardisation of the model's targets, or None.

    Attributes:
        counts: {split: nodes with a label, over all ranks}.
        name, metric: the metric (see tasks/base.py).

    Raises:
        ConfigError: on all ranks, for a metric that does not fit.
    """

    def __init__(self, local: LocalGraph, metric: str, comm: Communicator, scale: Scale | None = None) -> None:
        self._labels, self._comm, self._scale = local.labels, comm, scale
        self.task = TASKS[local.task]
        self._masks = {split: local.mask(split) for split in SPLITS}
        counts = comm.total(torch.tensor([int(mask.sum()) for mask in self._masks.values()]), "plan").tolist()
        self.counts: dict[str, int] = dict(zip(self._masks, counts, strict=True))
        self._told: set[str] = set()
        self.name = fitting_metric(metric, self.task)
        self.metric = self.task.metrics[self.name]

    def in_units(self, outputs: torch.Tensor) -> torch.Tensor:
        """A model's outputs (n_p, C) in the units of the labels: float64 where targets were standardised."""
        return outputs if self._scale is None else self._scale.in_units(outputs)

    def scores(self, outputs: torch.Tensor) -> dict[str, float]:
        """{'train': value, 'val': value, 'test': value} of a model's outputs (n_p, C) of own nodes; NaN where the
        metric is not defined. Collective.
        """
        outputs = self.in_units(outputs)
        found = {
            split: self.metric.score(outputs, self._labels, mask, self._comm) for split, mask in self._masks.items()
        }
        for split, value in found.items():
            if math.isnan(value) and self.counts[split] and split not in self._told and self._comm.rank == 0:
                self._told.add(split)
                what = self.name, self.counts[split], split, self.metric.undefined
                log.warning("the %s of the %d %s nodes is not defined: %s", *what)
        return found
