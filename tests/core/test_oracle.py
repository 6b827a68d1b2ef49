"""The oracle is right where the answer is known from elsewhere."""

import numpy as np
import oracle
import pytest


def test_metrics_by_hand():
    logits = np.array([[1.0, 1.0, 0.0], [0.0, 2.0, 3.0], [0.0, 1.0, 0.0]])
    assert oracle.accuracy(logits, np.array([0, 2, 0])) == pytest.approx(2 / 3), "the first of equal ones counts"
    # tp 1, fp 1, fn 2; a logit of 0 says no
    assert oracle.micro_f1(np.array([[1.0, -1.0], [2.0, 0.0]]), np.array([[1, 1], [0, 1]])) == pytest.approx(2 / 5)
    scores = np.array([[0.1, 1.0, 0.0], [0.4, 1.0, 0.0], [0.35, 1.0, 0.0], [0.8, 2.0, 0.0]])
    labels = np.array([[0, 1, 1], [0, 0, 1], [1, 0, 1], [1, 0, 1]])
    # 3 of 4 pairs; of 3 pairs two are ties and one is wrong; the last label has no pair
    assert oracle.roc_auc(scores, labels) == pytest.approx((3 / 4 + 1 / 3) / 2)
    assert np.isnan(oracle.roc_auc(scores[:, 2:], labels[:, 2:]))


def test_messages_by_hand():
    """Three ranks; rank 1 needs 3 rows of rank 0 and 1 of rank 2, the others nothing."""
    rows = [[0, 0], [3, 1], [0, 0]]
    assert oracle.messages(rows, 10, 10) == [1, 0, 1]
    assert oracle.messages(rows, 2, 2) == [2, 0, 1]
    assert oracle.messages(rows, 3, 3) == [2, 0, 1], "two rounds of two rows, not one of three and one of one"
    assert oracle.messages(rows, 10, 10, back=True) == [0, 2, 0]
    assert oracle.messages(rows, 2, 3) == [2, 0, 1] and oracle.messages(rows, 2, 4) == [1, 0, 1]
