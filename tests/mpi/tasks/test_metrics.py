"""Accuracy, micro-F1 and ROC-AUC over ranks against counting by hand, with ties, one-sided labels and ranks without
nodes.
"""

import math

import numpy as np
import oracle
import pytest
import torch

from hpcgnn.tasks import classification, multilabel
from hpcgnn.tasks.registry import TASKS

pytestmark = pytest.mark.ranks(2, 3)

N, CLASSES = 90, 5


def share(comm, kind, *arrays):
    """The rows of this rank: every size-th, or none on any rank but the last."""
    rows = slice(comm.rank, N, comm.size) if kind == "even" else slice(0 if comm.rank == comm.size - 1 else N, N)
    return [torch.from_numpy(array[rows]) for array in arrays]


@pytest.fixture(params=["even", "empty ranks"])
def kind(request):
    return request.param


def scores(seed):
    """Logits on a coarse grid, so that there are many ties, across ranks too."""
    return np.random.default_rng(seed).integers(-3, 4, (N, CLASSES)) * 0.5


def test_accuracy(comm, kind):
    random, logits = np.random.default_rng(0), scores(1)
    labels, mask = random.integers(0, CLASSES, N), random.random(N) < 0.4
    assert classification.accuracy(*share(comm, kind, logits, labels, mask), comm) == pytest.approx(
        oracle.accuracy(logits[mask], labels[mask]), abs=1e-12
    )


def test_micro_f1(comm, kind):
    random, logits = np.random.default_rng(2), scores(3)
    labels, mask = random.integers(0, 2, (N, CLASSES)).astype(np.float32), random.random(N) < 0.4
    assert multilabel.micro_f1(*share(comm, kind, logits, labels, mask), comm) == pytest.approx(
        oracle.micro_f1(logits[mask], labels[mask]), abs=1e-12
    )


@pytest.mark.parametrize("chunk", [1 << 16, 3])
def test_roc_auc(comm, kind, chunk, monkeypatch):
    monkeypatch.setattr(multilabel, "_CHUNK", chunk)
    random, logits = np.random.default_rng(4), scores(5)
    labels, mask = random.integers(0, 2, (N, CLASSES)).astype(np.float32), random.random(N) < 0.6
    labels[:, 1], labels[:, 3] = 0, 1  # labels with one kind of node only have no curve
    value = multilabel.roc_auc(*share(comm, kind, logits, labels, mask), comm)
    assert value == pytest.approx(oracle.roc_auc(logits[mask], labels[mask]), abs=1e-12)


@pytest.mark.parametrize("task, name", [(task, name) for task in TASKS for name in TASKS[task].metrics])
def test_an_empty_split_has_no_value(comm, task, name):
    labels = TASKS[task].blank(4, CLASSES)
    score = TASKS[task].metrics[name].score
    value = score(torch.zeros(4, CLASSES), labels, torch.zeros(4, dtype=torch.bool), comm)
    assert math.isnan(value)


def test_auc_holds_no_more_than_a_chunk_of_other_ranks_scores(comm):
    """Each value is sent once to everybody: bytes are those of the positives, by label, and of the small counts."""
    random, logits = np.random.default_rng(6), scores(7)
    labels = random.integers(0, 2, (N, CLASSES)).astype(np.float32)
    comm.ledger.take()
    multilabel.roc_auc(*share(comm, "even", logits, labels, np.ones(N, bool)), comm)
    assert comm.ledger.take()["metrics"].bytes_sent == int(labels.sum()) * 8 + CLASSES * 3 * 8
