"""The oracle is right where the answer is known from elsewhere."""

import numpy as np
import oracle
import pytest


@pytest.mark.parametrize(
    "counter, key, words",
    [
        ([0] * 4, [0] * 2, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0],
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_philox_gives_the_published_words(counter, key, words):
    """The known answers that come with Random123, the authors' implementation."""
    assert " ".join(f"{word:08x}" for word in oracle.philox(np.array(counter, np.uint32), key)) == words


def test_keys_are_splitmix64s():
    """The first word of the published SplitMix64 from seed 0; parts are told apart, and so are their places."""
    assert oracle.stream_key(0) == 0xE220A8397B1DCDAF
    assert len({oracle.stream_key(*parts) for parts in ((0,), (1,), (0, 1), (1, 0), (0, 0), (2**64 - 1,))}) == 6
    assert oracle.stream_key(2**64 + 5) == oracle.stream_key(5)


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
