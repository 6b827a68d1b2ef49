"""Metrics over ranks against counting by hand, with ties, one-sided labels and ranks without nodes."""

import math

import numpy as np
import oracle
import pytest
import torch

from hpcgnn.tasks import classification, metrics
from hpcgnn.tasks.metrics import rows_by_class
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


def value_of(comm, kind, task, name, *arrays):
    return TASKS[task].metrics[name].score(*share(comm, kind, *arrays), comm)


def test_accuracy_and_micro_f1(comm, kind):
    random, logits = np.random.default_rng(0), scores(1)
    labels, mask = random.integers(0, CLASSES, N), random.random(N) < 0.4
    expected = oracle.accuracy(logits[mask], labels[mask])
    assert classification.accuracy(*share(comm, kind, logits, labels, mask), comm) == pytest.approx(expected, abs=1e-12)
    several = random.integers(0, 2, (N, CLASSES)).astype(np.float32)
    expected = oracle.micro_f1(logits[mask], several[mask])
    assert classification.micro_f1(*share(comm, kind, logits, several, mask), comm) == pytest.approx(
        expected, abs=1e-12
    )


def test_classes_that_few_or_no_nodes_have(comm, kind):
    """Class 3 is neither there nor predicted, class 4 is predicted alone: it has an F1, 0, and no recall."""
    random, logits = np.random.default_rng(8), scores(9)
    labels, mask = random.integers(0, 3, N), random.random(N) < 0.4
    logits[:, 3] = -9
    predicted = logits.argmax(1)
    precision, recall, f1 = oracle.by_class(predicted[mask], labels[mask], CLASSES)
    assert np.isnan(f1[3]) and f1[4] == 0 and np.isnan(recall[3:]).all()
    arrays = logits, labels, mask
    assert value_of(comm, kind, "classification", "macro-f1", *arrays) == pytest.approx(np.nanmean(f1))
    rows = rows_by_class(classification.class_counts(*share(comm, kind, *arrays), comm), list("abcde"))
    assert [row["name"] for row in rows] == list("abcde") and [row["class"] for row in rows] == list(range(CLASSES))
    for name, expected in (("precision", precision), ("recall", recall), ("f1", f1)):
        np.testing.assert_allclose([row[name] for row in rows], expected)
    table = np.zeros((CLASSES, CLASSES), int)
    np.add.at(table, (labels[mask], predicted[mask]), 1)
    assert [row["support"] for row in rows] == table.sum(1).tolist()
    assert [row["predicted"] for row in rows] == table.sum(0).tolist()


@pytest.mark.parametrize("chunk", [1 << 14, 3])
def test_areas_under_curves(comm, kind, chunk, monkeypatch):
    monkeypatch.setattr(metrics, "_CHUNK", chunk)
    random, logits = np.random.default_rng(4), scores(5)
    labels, mask = random.integers(0, 2, (N, CLASSES)).astype(np.float32), random.random(N) < 0.6
    labels[:, 1], labels[:, 3] = 0, 1  # labels with one kind of node only have no ROC curve
    arrays = logits, labels, mask
    value = value_of(comm, kind, "multilabel", "roc-auc", *arrays)
    assert value == pytest.approx(oracle.roc_auc(logits[mask], labels[mask]), abs=1e-12)
    _, _, f1 = zip(*(oracle.by_class(logits[mask, k] > 0, labels[mask, k] == 1, 2) for k in range(CLASSES)))
    value = value_of(comm, kind, "multilabel", "macro-f1", *arrays)
    assert value == pytest.approx(np.mean([each[1] for each in f1]), abs=1e-12)
    rows = rows_by_class(classification.label_counts(*share(comm, kind, *arrays), comm), ())
    assert [row["support"] for row in rows] == labels[mask].sum(0).tolist()


def test_areas_of_two_classes(comm, kind):
    random, logits = np.random.default_rng(10), scores(11)[:, :2]
    labels, mask = random.integers(0, 2, N), random.random(N) < 0.6
    score, truth = (logits[:, 1] - logits[:, 0])[mask], labels[mask] == 1
    expected = oracle.roc_auc(score[:, None], truth[:, None])
    value = value_of(comm, kind, "classification", "roc-auc", logits, labels, mask)
    assert value == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("task, name", [(task, name) for task in TASKS for name in TASKS[task].metrics])
def test_an_empty_split_has_no_value(comm, task, name):
    labels = TASKS[task].blank(4, CLASSES)
    score = TASKS[task].metrics[name].score
    value = score(torch.zeros(4, CLASSES), labels, torch.zeros(4, dtype=torch.bool), comm)
    assert math.isnan(value)


def test_areas_send_the_scores_of_positives(comm):
    """Each value is sent once to everybody, and counts of labels are summed."""
    random, logits = np.random.default_rng(6), scores(7)
    labels = random.integers(0, 2, (N, CLASSES)).astype(np.float32)
    comm.ledger.take()
    value_of(comm, "even", "multilabel", "roc-auc", logits, labels, np.ones(N, bool))
    assert comm.ledger.take()["metrics"].bytes_sent == labels.sum() * 8 + CLASSES * 3 * 8
