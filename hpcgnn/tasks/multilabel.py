"""Several 0/1 labels per node: binary cross-entropy, micro-F1 and ROC-AUC, exact over all ranks."""

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F

from hpcgnn.comm.communicator import Communicator
from hpcgnn.memory.arena import Arena
from hpcgnn.tasks.base import LabelTask, Metric, Scale
from hpcgnn.tasks.counting import ratio

_CHUNK = 1 << 16


def micro_f1(logits: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor, comm: Communicator) -> float:
    """2 TP / (2 TP + FP + FN) over all nodes and labels, predicting a label where its logit is positive. labels 0/1
    (n_p, C).
    """
    predicted, truth = logits[mask] > 0, labels[mask] > 0
    counts = comm.total(torch.stack([(predicted & truth).sum(), (predicted != truth).sum()]).to(torch.int64))
    return ratio(2 * counts[0], 2 * counts[0] + counts[1])


def roc_auc(logits: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor, comm: Communicator) -> float:
    """Return the mean over labels of the area under the ROC curve, without labels that have only one kind of node.

    It is exact (Mann-Whitney): the share of positive-negative pairs in the right order, ties counted half. Every rank
    sorts its own negatives. The positives of each rank pass by in bounded chunks, so a rank never holds more than its
    share and a chunk. Collective.

    Args:
        logits: outputs of owned nodes, (n_p, C).
        labels: 0 and 1, (n_p, C).
        mask: bool (n_p,), the nodes of the split.
        comm: the communicator.
    """
    scores, truth = logits[mask].double().numpy(), labels[mask].numpy() > 0
    areas = []
    for label in range(logits.shape[1]):
        positive, negative = scores[truth[:, label], label], np.sort(scores[~truth[:, label], label])
        pairs_twice = sum(
            np.searchsorted(negative, chunk, "left").sum() + np.searchsorted(negative, chunk, "right").sum()
            for chunk in _pass_by(positive, comm)
        )
        totals = comm.total(torch.tensor([int(pairs_twice), len(positive), len(negative)]))
        if totals[1] and totals[2]:
            areas.append(float(totals[0]) / (2.0 * float(totals[1]) * float(totals[2])))
    return float(np.mean(areas)) if areas else float("nan")


def _pass_by(values: np.ndarray, comm: Communicator) -> Iterator[np.ndarray]:
    """Yield the float64 values of every rank in turn, in chunks. Collective."""
    counts = comm.allgather_object(len(values))
    for root, count in enumerate(counts):
        for start in range(0, count, _CHUNK):
            chunk = torch.empty(min(_CHUNK, count - start), dtype=torch.float64)
            if root == comm.rank:
                chunk.copy_(torch.from_numpy(values[start : start + len(chunk)]))
            yield comm.broadcast_(chunk, root, "metrics").numpy()


class MultiLabel(LabelTask):
    """A LabelTask. Labels: float32 (n_p, C) of 0 and 1."""

    name, said, outputs = "multilabel", "several 0/1 labels per node", "labels"
    losses = ("cross-entropy",)
    probabilities = staticmethod(torch.sigmoid)
    metrics: ClassVar[dict[str, Metric]] = {
        "micro-f1": Metric(micro_f1, "no label is there on any of them, and none is predicted"),
        "roc-auc": Metric(roc_auc, "no label is there on some of them and absent on others"),
    }

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

    def columns(self, outputs: int) -> list[str]:
        return [f"label_{label}" for label in range(outputs)]

    def blank(self, nodes: int, outputs: int) -> torch.Tensor:
        return torch.zeros(nodes, outputs)
