"""Several 0/1 labels per node: binary cross-entropy, and metrics of all labels together or in the mean over labels."""

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

import torch
import torch.nn.functional as F

from hpcgnn.comm.communicator import Communicator
from hpcgnn.memory.arena import Arena
from hpcgnn.tasks.base import Metric, Scale
from hpcgnn.tasks.labels import LabelTask
from hpcgnn.tasks.metrics import Area, average_precision, macro_f1_of, ratio, roc_auc, rows_by_class


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


def macro_f1(logits: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor, comm: Communicator) -> float:
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
        "macro-f1": Metric(macro_f1, "no label is there on any of them, and none is predicted"),
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
