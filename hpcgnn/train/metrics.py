"""Accuracy, micro-F1 and ROC-AUC of a split, exact over all ranks: sums of counts in integers, never means of means."""

from collections.abc import Iterator

import numpy as np
import torch

from hpcgnn.comm.communicator import Communicator

_CHUNK = 1 << 16


def accuracy(logits: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor, comm: Communicator) -> float:
    """The share of nodes whose largest logit is their label. logits (n_p, C), labels int64 (n_p,), mask bool (n_p,)."""
    correct = (logits[mask].argmax(1) == labels[mask]).sum() if mask.any() else torch.tensor(0)
    counts = comm.total(torch.stack([correct, mask.sum()]).to(torch.int64))
    return _ratio(counts[0], counts[1])


def micro_f1(logits: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor, comm: Communicator) -> float:
    """2 TP / (2 TP + FP + FN) over all nodes and labels, predicting a label where its logit is positive. labels 0/1
    (n_p, C).
    """
    predicted, truth = logits[mask] > 0, labels[mask] > 0
    counts = comm.total(torch.stack([(predicted & truth).sum(), (predicted != truth).sum()]).to(torch.int64))
    return _ratio(2 * counts[0], 2 * counts[0] + counts[1])


def roc_auc(logits: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor, comm: Communicator) -> float:
    """The mean over labels of the area under the ROC curve, skipping labels that have only one kind of node.

    Exact (Mann-Whitney: the share of positive-negative pairs in the right order, ties half). Every rank sorts its own
    negatives; the positives of each rank pass by in bounded chunks, so no rank ever holds more than its share and a
    chunk.
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


def _ratio(part: torch.Tensor, whole: torch.Tensor) -> float:
    return float(part) / float(whole) if whole else float("nan")


METRICS = {"accuracy": accuracy, "micro-f1": micro_f1, "roc-auc": roc_auc}
