"""One class per node: cross-entropy, and metrics of the class with the largest logit, or of the order of the logits.

Several 0/1 labels per node: binary cross-entropy, and metrics of all labels together or in the mean over labels.
"""

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F

from hpcgnn.comm.communicator import Communicator
from hpcgnn.memory.arena import Arena
from hpcgnn.ops.losses import cross_entropy
from hpcgnn.tasks.base import Metric
from hpcgnn.tasks.labels import Counts, LabelTask
from hpcgnn.tasks.metrics import mean_ratio, ratio, roc_auc


def accuracies(logits: torch.Tensor, labels: torch.Tensor, masks: torch.Tensor, comm: Communicator) -> list[float]:
    """The share of nodes whose largest logit is their label. logits (n_p, C), labels int64 (n_p,), masks (S, n_p)."""
    right = (logits.argmax(1) == labels).numpy()
    # torch would widen what it counts, and picking the rows of a mask would take longer.
    counts = [(np.count_nonzero(right & mask), np.count_nonzero(mask)) for mask in masks.numpy()]
    return [ratio(*each) for each in comm.total(torch.tensor(counts))]


def accuracy(logits: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor, comm: Communicator) -> float:
    """The accuracy of one mask, bool (n_p,)."""
    return accuracies(logits, labels, mask[None], comm)[0]


def class_counts(logits: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor, comm: Communicator) -> torch.Tensor:
    """The counts of the classes (metrics.py), likewise."""
    predicted, wanted = logits[mask].argmax(1), labels[mask]
    parts = wanted[predicted == wanted], predicted, wanted
    return comm.total(torch.stack([torch.bincount(each, minlength=logits.shape[1]) for each in parts]))


def macro_f1(
    logits: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor, comm: Communicator, counts: Counts
) -> float:
    """The mean F1 of the classes that some node has or is predicted to have, likewise."""
    right, predicted, support = counts(logits, labels, mask, comm)
    return mean_ratio(2 * right, predicted + support)


def roc_auc_of_two(logits: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor, comm: Communicator) -> float:
    """The area under the ROC curve of the second of two classes, by the difference of its logit and the first one's."""
    scores, truth = logits[mask].double(), labels[mask] == 1
    return roc_auc((scores[:, 1:2] - scores[:, :1]).numpy(), truth[:, None].numpy(), comm)


class Classification(LabelTask):
    """A LabelTask. Labels: int64 (n_p,), -1 for none."""

    name, said, outputs = "classification", "one class per node", "classes"
    losses = ("cross-entropy",)
    probabilities = staticmethod(partial(torch.softmax, dim=1))
    metrics: ClassVar[dict[str, Metric]] = {
        "accuracy": Metric(accuracy, together=accuracies),
        "macro-f1": Metric(partial(macro_f1, counts=class_counts)),
        "roc-auc": Metric(roc_auc_of_two, outputs=2),
    }
    counts = staticmethod(class_counts)

    def loss(
        self, outputs: torch.Tensor, rows: torch.Tensor | None, targets: torch.Tensor, name: str, arena: Arena
    ) -> torch.Tensor:
        return cross_entropy(outputs, rows, targets, arena)

    def predict(self, outputs: torch.Tensor) -> torch.Tensor:
        return outputs.argmax(1, keepdim=True)

    def columns(self, outputs: int, names: Sequence[str] = ()) -> list[str]:
        return ["class"]

    def blank(self, nodes: int, outputs: int) -> torch.Tensor:
        return torch.zeros(nodes, dtype=torch.int64)


def micro_f1(logits: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor, comm: Communicator) -> float:
    """2 TP / (2 TP + FP + FN) over all nodes and labels, predicting a label where its logit is positive. labels 0/1
    (n_p, C).
    """
    predicted, truth = logits[mask] > 0, labels[mask] > 0
    counts = comm.total(torch.stack([(predicted & truth).sum(), (predicted != truth).sum()]).to(torch.int64))
    return ratio(2 * counts[0], 2 * counts[0] + counts[1])


def label_counts(logits: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor, comm: Communicator) -> torch.Tensor:
    """The counts of the labels (metrics.py), likewise."""
    predicted, truth = logits[mask] > 0, labels[mask] > 0
    return comm.total(torch.stack([each.sum(0) for each in (predicted & truth, predicted, truth)]))


def roc_auc_of_labels(logits: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor, comm: Communicator) -> float:
    """The mean over labels of the area under the ROC curve, likewise."""
    return roc_auc(logits[mask].double().numpy(), labels[mask].numpy() > 0, comm)


class MultiLabel(LabelTask):
    """A LabelTask. Labels: float32 (n_p, C) of 0 and 1."""

    name, said, outputs = "multilabel", "several 0/1 labels per node", "labels"
    losses = ("cross-entropy",)
    probabilities = staticmethod(torch.sigmoid)
    metrics: ClassVar[dict[str, Metric]] = {
        "micro-f1": Metric(micro_f1),
        "macro-f1": Metric(partial(macro_f1, counts=label_counts)),
        "roc-auc": Metric(roc_auc_of_labels),
    }
    counts = staticmethod(label_counts)

    def loss(
        self, outputs: torch.Tensor, rows: torch.Tensor | None, targets: torch.Tensor, name: str, arena: Arena
    ) -> torch.Tensor:
        selected = outputs if rows is None else outputs.index_select(0, rows)
        return F.binary_cross_entropy_with_logits(selected, targets.to(selected.dtype), reduction="sum")

    def predict(self, outputs: torch.Tensor) -> torch.Tensor:
        return (outputs > 0).to(torch.int32)

    def columns(self, outputs: int, names: Sequence[str] = ()) -> list[str]:
        return [f"label_{label}" for label in names or range(outputs)]
