"""The oracle is right where the answer is known from elsewhere."""

import numpy as np
import oracle
import pytest
import torch


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


def test_symmetric_normalisation():
    """A path of three nodes by hand: degrees 1, 2, 1."""
    a = oracle.adjacency(3, np.array([0, 1, 1, 2]), np.array([1, 0, 2, 1]))
    root = 2**-0.5
    np.testing.assert_allclose(oracle.operator(a, "sym"), [[0, root, 0], [root, 0, root], [0, root, 0]])


def test_symmetric_normalisation_of_a_directed_graph():
    """Out-degrees of sources, in-degrees of destinations: 0 -> 1, 0 -> 2, 1 -> 2."""
    a = oracle.adjacency(3, np.array([0, 0, 1]), np.array([1, 2, 2]))
    np.testing.assert_allclose(oracle.operator(a, "sym"), [[0, 0, 0], [2**-0.5, 0, 0], [0.5, 2**-0.5, 0]])


def test_mean_and_isolated_nodes():
    a = oracle.adjacency(3, np.array([0, 1, 1]), np.array([1, 1, 1]))
    np.testing.assert_allclose(oracle.operator(a, "mean"), [[0, 0, 0], [1 / 3, 2 / 3, 0], [0, 0, 0]])
    assert oracle.adjacency(3, np.array([1]), np.array([1]), self_loops="add").tolist() == np.eye(3).tolist()


def test_losses():
    random = torch.Generator().manual_seed(0)
    logits, train = torch.randn(20, 4, generator=random), torch.rand(20, generator=random) < 0.5
    labels = torch.randint(0, 4, (20,), generator=random)
    torch.testing.assert_close(
        oracle.loss(logits, labels, train), torch.nn.functional.cross_entropy(logits[train], labels[train])
    )
    several = torch.randint(0, 2, (20, 4), generator=random)
    torch.testing.assert_close(
        oracle.loss(logits, several, train),
        torch.nn.functional.binary_cross_entropy_with_logits(logits[train], several[train].float()),
    )


def test_messages_by_hand():
    """Three ranks; rank 1 needs 3 rows of rank 0 and 1 of rank 2, the others nothing."""
    rows = [[0, 0], [3, 1], [0, 0]]
    assert oracle.messages(rows, 10, 10) == [1, 0, 1]
    assert oracle.messages(rows, 2, 2) == [2, 0, 1]
    assert oracle.messages(rows, 3, 3) == [2, 0, 1], "two rounds of two rows, not one of three and one of one"
    assert oracle.messages(rows, 2, 3) == [2, 0, 1] and oracle.messages(rows, 2, 4) == [1, 0, 1]
