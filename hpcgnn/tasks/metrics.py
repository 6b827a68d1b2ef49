"""Metrics over the nodes of all ranks: ratios of counts by class, and areas under ROC curves.

The counts of classes or labels are int64 (3, C): right predictions, all predictions, and nodes that have the class.
What follows from them is a ratio of sums in integers, never a mean of means.

ROC-AUC is exact. Each column of scores is a ranking of its own. Every rank sorts the scores of
its own nodes. The positives of each rank pass by in bounded chunks, so a rank never holds more than its share and a
chunk.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from hpcgnn.comm.communicator import Communicator

# Scores that all ranks have at a time; what is counted for each takes some eight times as much.
_CHUNK = 1 << 14


def ratio(part: torch.Tensor, whole: torch.Tensor) -> float:
    """part / whole, NaN where there is nothing."""
    return float(part) / float(whole) if whole else math.nan


def mean_ratio(parts: torch.Tensor, wholes: torch.Tensor) -> float:
    """The mean of part / whole, without those whose whole is 0; NaN if all are."""
    there = wholes > 0
    return float((parts[there].double() / wholes[there]).mean())


def rows_by_class(counts: torch.Tensor, names: Sequence[str]) -> list[dict[str, Any]]:
    """A row of a table for each class; NaN for what is not defined. counts: of all ranks; names: of the classes, or
    empty.
    """
    return [
        {
            "class": number,
            **({"name": names[number]} if names else {}),
            "support": int(support),
            "predicted": int(predicted),
            "precision": ratio(right, predicted),
            "recall": ratio(right, support),
            "f1": ratio(2 * right, predicted + support),
        }
        for number, (right, predicted, support) in enumerate(counts.T)
    ]


def roc_auc(scores: np.ndarray, truth: np.ndarray, comm: Communicator) -> float:
    """The mean area under the ROC curve of the columns, without those that have only one kind of node; NaN if all have.
    scores: float64 (m, K); truth: bool (m, K). Collective.

    It is the share of positive-negative pairs in the right order, ties counted half (Mann-Whitney).
    """
    positives, negatives = _sorted(scores, truth), _sorted(scores, ~truth)
    pairs_twice = [0] * len(positives)
    for chunk in _pass_by(positives, comm):
        for column, (some, below) in enumerate(zip(chunk, negatives, strict=True)):
            pairs_twice[column] += sum(int(np.searchsorted(below, some, side).sum()) for side in ("left", "right"))
    counts = torch.tensor([pairs_twice, *([len(each) for each in part] for part in (positives, negatives))])
    pairs, ones, others = comm.total(counts).double().numpy()
    defined = ones * others > 0
    return float(np.mean((pairs / 2)[defined] / (ones * others)[defined])) if defined.any() else float("nan")


def _sorted(scores: np.ndarray, which: np.ndarray) -> list[np.ndarray]:
    return [np.sort(column[chosen]) for column, chosen in zip(scores.T, which.T, strict=True)]


def _pass_by(columns: Sequence[np.ndarray], comm: Communicator) -> Iterator[list[np.ndarray]]:
    """Yield the float64 values of every rank in turn, in chunks, each with its values of every column. Collective."""
    mine = np.concatenate(columns)
    for root, lengths in enumerate(comm.allgather_object([len(each) for each in columns])):
        ends = np.cumsum(lengths)
        for start in range(0, ends[-1], _CHUNK):
            chunk = torch.empty(min(_CHUNK, ends[-1] - start), dtype=torch.float64)
            if root == comm.rank:
                chunk.copy_(torch.from_numpy(mine[start : start + len(chunk)]))
            values = comm.broadcast_(chunk, root, "metrics").numpy()
            yield np.split(values, np.clip(ends[:-1] - start, 0, len(values)))
