"""One class per node: cross-entropy, and metrics of the class with the largest logit, or of the order of the logits.

Several 0/1 labels per node: binary cross-entropy, and metrics of all labels together or in the mean over labels.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

import torch
import torch.nn.functional as F

from hpcgnn.comm.communicator import Communicator
from hpcgnn.memory.arena import Arena
from hpcgnn.ops.losses import cross_entropy, soft_cross_entropy
from hpcgnn.options import TaskConfig
from hpcgnn.tasks.base import Metric, Scale
from hpcgnn.tasks.labels import LabelTask
from hpcgnn.tasks.metrics import Area, average_precision, macro_f1_of, mean_ratio, ratio, roc_auc, rows_by_class

# So many classes have a confusion matrix at most.
MOST_CONFUSED = 100


def accuracy(logits: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor, comm: Communicator) -> float:
    """The share of nodes whose largest logit is their label. logits (n_p, C), labels int64 (n_p,), mask bool (n_p,)."""
    correct = (logits[mask].argmax(1) == labels[mask]).sum() if mask.any() else torch.tensor(0)
    counts = comm.total(torch.stack([correct, mask.sum()]).to(torch.int64))
    return ratio(counts[0], counts[1])


def class_counts(logits: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor, comm: Communicator) -> torch.Tensor:
    """The counts of the classes (metrics.py), likewise."""
    predicted, wanted = logits[mask].argmax(1), labels[mask]
    parts = wanted[predicted == wanted], predicted, wanted
    return comm.total(torch.stack([torch.bincount(each, minlength=logits.shape[1]) for each in parts]))


def macro_f1_of_classes(logits: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor, comm: Communicator) -> float:
    """The mean F1 of the classes that some node has or is predicted to have, likewise."""
    return macro_f1_of(class_counts(logits, labels, mask, comm))


def balanced_accuracy(logits: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor, comm: Communicator) -> float:
    """The mean recall of the classes that some node has, likewise."""
    right, _, support = class_counts(logits, labels, mask, comm)
    return mean_ratio(right, support)


def of_two(logits: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor, comm: Communicator, area: Area) -> float:
    """An area under a curve of the second of two classes, by the difference of its logit and the first one's."""
    scores, truth = logits[mask].double(), labels[mask] == 1
    return area((scores[:, 1:2] - scores[:, :1]).numpy(), truth[:, None].numpy(), comm)


def confusion(logits: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor, comm: Communicator) -> torch.Tensor:
    """int64 (C, C): the nodes of each class (rows) by predicted class (columns), likewise."""
    classes = logits.shape[1]
    pairs = labels[mask] * classes + logits[mask].argmax(1)
    return comm.total(torch.bincount(pairs, minlength=classes**2)).view(classes, classes)


def balanced_weights(labels: torch.Tensor, classes: int, comm: Communicator) -> torch.Tensor:
    """float64 (C,): n / (K n_c) for a class c that n_c of the n nodes have, K classes having any; 1 for the others. So
    the mean weight over the nodes is 1. labels: int64 (m_p,), of this rank's training nodes. Collective.
    """
    counts = comm.total(torch.bincount(labels, minlength=classes), "plan").double()
    return torch.where(counts > 0, counts.sum() / ((counts > 0).sum() * counts.clamp_min(1)), 1.0)


class Classification(LabelTask):
    """A LabelTask. Labels: int64 (n_p,), -1 for none.

    Attributes:
        smoothing: weight that the loss moves from the label to all classes.
        class_weights: float64 (C,), weight of a class's nodes in the loss, or None for equal weights.
    """

    name, said, outputs = "classification", "one class per node", "classes"
    losses = ("cross-entropy",)
    probabilities = staticmethod(partial(torch.softmax, dim=1))
    metrics: ClassVar[dict[str, Metric]] = {
        "accuracy": Metric(accuracy, "no node has a class"),
        "macro-f1": Metric(macro_f1_of_classes, "no node has a class"),
        "balanced-accuracy": Metric(balanced_accuracy, "no node has a class"),
        "roc-auc": Metric(partial(of_two, area=roc_auc), "all of them have the same class", outputs=2),
        "average-precision": Metric(partial(of_two, area=average_precision), "none has the second class", outputs=2),
    }

    def __init__(self, smoothing: float = 0.0, class_weights: torch.Tensor | None = None) -> None:
        self._smoothing, self._class_weights = smoothing, class_weights

    def check(self, options: TaskConfig) -> None: ...

    def configured(
        self, options: TaskConfig, labels: torch.Tensor, outputs: int, comm: Communicator
    ) -> "Classification":
        weights = balanced_weights(labels, outputs, comm) if options.class_weights == "balanced" else None
        return type(self)(options.label_smoothing, weights)

    def by_class(
        self, outputs: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor, comm: Communicator, names: Sequence[str]
    ) -> dict[str, Any]:
        tables: dict[str, Any] = {"classes": rows_by_class(class_counts(outputs, labels, mask, comm), names)}
        if outputs.shape[1] <= MOST_CONFUSED:
            tables["confusion"] = confusion(outputs, labels, mask, comm).tolist()
        return tables

    def weight(self, labels: torch.Tensor) -> float:
        return len(labels) if self._class_weights is None else float(self._class_weights[labels].sum())

    def targets(self, labels: torch.Tensor, scale: Scale | None) -> torch.Tensor:
        return labels

    def loss(
        self, outputs: torch.Tensor, rows: torch.Tensor | None, targets: torch.Tensor, name: str, arena: Arena
    ) -> torch.Tensor:
        if not self._smoothing and self._class_weights is None:
            return cross_entropy(outputs, rows, targets, arena)
        return soft_cross_entropy(outputs, rows, targets, self._smoothing, self._class_weights, arena)

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


def macro_f1_of_labels(logits: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor, comm: Communicator) -> float:
    """The mean F1 of the labels that are there on some node or predicted for some, likewise."""
    return macro_f1_of(label_counts(logits, labels, mask, comm))


def of_labels(logits: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor, comm: Communicator, area: Area) -> float:
    """The mean over labels of an area under a curve, likewise."""
    return area(logits[mask].double().numpy(), labels[mask].numpy() > 0, comm)


class MultiLabel(LabelTask):
    """A LabelTask. Labels: float32 (n_p, C) of 0 and 1."""

    name, said, outputs = "multilabel", "several 0/1 labels per node", "labels"
    losses = ("cross-entropy",)
    probabilities = staticmethod(torch.sigmoid)
    metrics: ClassVar[dict[str, Metric]] = {
        "micro-f1": Metric(micro_f1, "no label is there on any of them, and none is predicted"),
        "macro-f1": Metric(macro_f1_of_labels, "no label is there on any of them, and none is predicted"),
        "roc-auc": Metric(partial(of_labels, area=roc_auc), "no label is there on some of them and absent on others"),
        "average-precision": Metric(partial(of_labels, area=average_precision), "no label is there on any of them"),
    }

    def by_class(
        self, outputs: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor, comm: Communicator, names: Sequence[str]
    ) -> dict[str, Any]:
        return {"classes": rows_by_class(label_counts(outputs, labels, mask, comm), names)}

    def weight(self, labels: torch.Tensor) -> int:
        return labels.numel()

    def targets(self, labels: torch.Tensor, scale: Scale | None) -> torch.Tensor:
        return labels

    def loss(
        self, outputs: torch.Tensor, rows: torch.Tensor | None, targets: torch.Tensor, name: str, arena: Arena
    ) -> torch.Tensor:
        selected = outputs if rows is None else outputs.index_select(0, rows)
        return F.binary_cross_entropy_with_logits(selected, targets.to(selected.dtype), reduction="sum")

    def predict(self, outputs: torch.Tensor) -> torch.Tensor:
        return (outputs > 0).to(torch.int32)

    def columns(self, outputs: int, names: Sequence[str] = ()) -> list[str]:
        return [f"label_{label}" for label in names or range(outputs)]
