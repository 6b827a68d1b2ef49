"""Exact evaluation: the whole graph, every rank its own rows, by the same streams as training. No rank holds it all."""

import logging
import math

import torch

from hpcgnn.comm.communicator import Communicator
from hpcgnn.errors import ConfigError
from hpcgnn.graph.local import LocalGraph
from hpcgnn.graphfile.storage import SPLITS
from hpcgnn.nn.graph import Graph
from hpcgnn.train.metrics import METRICS

log = logging.getLogger("hpcgnn")
UNDEFINED = {
    "micro-f1": "no label is there on any of them, and none is predicted",
    "roc-auc": "no label is there on some of them and absent on others",
}


def choose_metric(name: str, multi_label: bool) -> str:
    """The name of the metric to use. Raises ConfigError if it does not fit the task."""
    fitting = ("micro-f1", "roc-auc") if multi_label else ("accuracy",)
    if name == "auto":
        return fitting[0]
    if name not in fitting:
        error = ConfigError(
            f"--metric {name} does not fit a {'multi' if multi_label else 'single'}-label task; expected "
            f"{' or '.join(fitting)}"
        )
        error.everywhere = True
        raise error
    return name


class Evaluator:
    """Evaluates a model on all splits. The ledger books its traffic as `evaluation`. Made collectively.

    counts: {split: nodes with a label, over all ranks}.
    """

    def __init__(self, local: LocalGraph, metric: str, comm: Communicator) -> None:
        self._labels, self._comm = local.labels, comm
        self._masks = {split: local.mask(split) for split in SPLITS}
        counts = comm.total(torch.tensor([int(mask.sum()) for mask in self._masks.values()]), "plan").tolist()
        self.counts: dict[str, int] = dict(zip(self._masks, counts))
        self._told: set[str] = set()
        self.name = choose_metric(metric, local.multi_label)
        self._metric = METRICS[self.name]

    def __call__(self, model: torch.nn.Module, graph: Graph) -> dict[str, float]:
        """{'train': value, 'val': value, 'test': value}; NaN where the metric is not defined. Collective."""
        model.eval()
        with torch.no_grad(), self._comm.ledger.booked_as("evaluation"):
            result = self.scores(model(graph))
        model.train()
        return result

    def scores(self, logits: torch.Tensor) -> dict[str, float]:
        """The metric of each split from the logits (n_p, C) of own nodes. Collective."""
        found = {split: self._metric(logits, self._labels, mask, self._comm) for split, mask in self._masks.items()}
        for split, value in found.items():
            if math.isnan(value) and self.counts[split] and split not in self._told and self._comm.rank == 0:
                self._told.add(split)
                what = self.name, self.counts[split], split, UNDEFINED[self.name]
                log.warning("the %s of the %d %s nodes is not defined: %s", *what)
        return found
