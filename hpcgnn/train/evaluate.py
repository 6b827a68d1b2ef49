"""Exact evaluation: the whole graph, every rank its own rows, by the same streams as training. No rank holds it all."""

import torch

from hpcgnn.errors import ConfigError
from hpcgnn.graph.storage import SPLITS
from hpcgnn.train.metrics import METRICS


def choose_metric(name, multi_label):
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
    """Evaluates a model on all splits. The ledger books its traffic as `evaluation`."""

    def __init__(self, local, metric, comm):
        self._labels, self._comm = local.labels, comm
        self._masks = {split: local.mask(split) for split in SPLITS}
        self.name = choose_metric(metric, local.multi_label)
        self._metric = METRICS[self.name]

    def __call__(self, model, graph):
        """{'train': value, 'val': value, 'test': value}; NaN for an empty split. Collective."""
        model.eval()
        with torch.no_grad(), self._comm.ledger.booked_as("evaluation"):
            result = self.scores(model(graph))
        model.train()
        return result

    def scores(self, logits):
        """The metric of each split from the logits (n_p, C) of own nodes. Collective."""
        return {split: self._metric(logits, self._labels, mask, self._comm) for split, mask in self._masks.items()}
