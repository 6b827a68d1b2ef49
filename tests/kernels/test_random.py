"""Philox against its published answers; keys; dropout's bits, rate and scale."""

import numpy as np
import oracle
import pytest
import torch

from hpcgnn.kernels import dropout, random_words, stream_key
from hpcgnn.kernels.randomness import philox

# From the known-answer file of the Random123 library (Salmon et al., SC'11): counter, key, words of philox4x32-10.
KNOWN_ANSWERS = [
    ([0, 0, 0, 0], [0, 0], [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xA4093822, 0x299F31D0],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]


@pytest.mark.parametrize("counter, key, words", KNOWN_ANSWERS)
def test_known_answers(counter, key, words):
    assert oracle.philox(np.array([counter], np.uint32), key).tolist() == [words]
    assert philox(torch.tensor([counter]), key[0] | key[1] << 32).tolist() == [words]


def test_words_are_those_of_the_documented_counter(kernels):
    key = stream_key(3, 1, 4)
    ids = torch.tensor([0, 1, 2**32 - 1, 2**32, 2**40 + 17, -1, 2**63 - 1])
    for columns in (0, 1, 3, 4, 5, 31, 32, 33, 64, 70, 530):
        words = random_words(key, ids, columns)
        assert words.shape == (7, columns) and words.dtype == torch.int64
        assert np.array_equal(words.numpy(), oracle.random_words(key, ids.numpy(), columns))
    many = random_words(key, torch.arange(5000), 9)
    assert torch.equal(many[[7, 4999]], random_words(key, torch.tensor([7, 4999]), 9))


def test_stream_key_separates_streams():
    keys = {stream_key(*parts) for parts in [(0,), (1,), (0, 0), (0, 1), (1, 0), (0, 0, 0), (-1,), (2**64 - 2,)]}
    assert len(keys) == 8
    assert len({stream_key(7, epoch, layer) for epoch in range(200) for layer in range(50)}) == 10_000
    assert all(0 <= key < 2**64 for key in keys)
    # Pinned: a change of these numbers changes every recorded training curve.
    assert stream_key(0) == 0xE220A8397B1DCDAF
    assert stream_key(2024, 3, 1, 2) == 0xEADD13CA56EE839D
    with pytest.raises(TypeError):
        stream_key(1, 1.5)


def test_dropped_values_are_zero_whatever_they_were(kernels):
    x = torch.full((4, 50), float("inf"))
    x[:, ::2] = float("nan")
    dropout(x, x, torch.arange(4), 5, 0.5)
    keep = random_words(5, torch.arange(4), 50) >= 2**31
    assert (x[~keep] == 0).all() and not (x[keep] == 0).any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("width", [5, 70])
def test_relu_on_the_way(kernels, dtype, width):
    """With the bits of two steps; what is not a number stays so."""
    x = torch.randn(300, width, generator=torch.Generator().manual_seed(1)).to(dtype)
    x[0, :3] = torch.tensor([float("nan"), float("inf"), -float("inf")])
    ids, wanted, found = torch.arange(300), torch.empty_like(x), x.clone()
    dropout(wanted, x.relu(), ids, 5, 0.3)
    dropout(found, found, ids, 5, 0.3, relu=True)
    torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)


def test_dropout_at_the_ends(kernels):
    x, ids = torch.randn(6, 5), torch.arange(6)
    out = torch.full((6, 5), 7.0)
    for p in (0.0, 1e-12):  # rounds to 0
        dropout(out, x, ids, 1, p)
        assert torch.equal(out, x)
    dropout(out, x, ids, 1, 1 - 1e-12)
    assert (out == 0).all()
    for p in (-0.1, 1.0, 1.5, float("nan")):
        with pytest.raises(ValueError, match="p: expected a probability"):
            dropout(out, x, ids, 1, p)
