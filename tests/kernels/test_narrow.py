"""Rows in 8 bits: levels, factors and layout by the definition, unbiased, the same bits from every implementation."""

import numpy as np
import oracle
import pytest
import torch

from hpcgnn.kernels import narrow, stream_key, widen

KEY = stream_key(7, 1)
DTYPES = [torch.float32, torch.float64]


def rows(count, width, dtype=torch.float32, seed=0):
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(count, width, generator=random, dtype=dtype) * torch.logspace(-3, 3, count, dtype=dtype)[:, None]
    x[::3].clamp_(min=0)  # as after a ReLU
    return x


def widened(x, ids=None):
    out, factors, result = torch.empty(x.shape, dtype=torch.int8), torch.empty(len(x), 1), torch.empty_like(x)
    narrow(out, factors, x, torch.arange(len(x)) + 5 if ids is None else ids, KEY)
    widen(result, out, factors)
    return result


def expected(x, ids):
    """Row by row in numpy, from words of the oracle's Philox."""
    number = x.numpy().dtype.type
    result = np.empty(x.shape, number)
    draws = ((oracle.random_words(KEY, ids.numpy(), x.shape[1]) >> 8) * 2.0**-24).astype(number)
    for i, row in enumerate(x.numpy()):
        step = np.float32(np.abs(row).max() / number(127))
        levels = np.clip(np.floor(row / number(step) + draws[i]), -127, 127) if step else np.zeros_like(row)
        result[i] = levels.astype(np.float32) * step
    return torch.from_numpy(result)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("width", [1, 3, 8, 40])
def test_by_the_definition(kernels, dtype, width):
    x, ids = rows(7, width, dtype), torch.tensor([3, 0, 2**33, 7, 9, 11, 2**62])
    assert torch.equal(widened(x, ids=ids), expected(x, ids))


def test_ends_stay(kernels):
    """Zeros of rows without negative numbers, rows of one number, and the ends of the range are as they were."""
    x = torch.tensor([[0.0, 3.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0], [2.0, 2.0, 2.0, 2.0], [-1.0, -1.0, -1.0, -1.0]])
    found = widened(x)
    assert (found[0, [0, 2]] == 0).all() and (found[1] == 0).all()
    torch.testing.assert_close(found[2:], x[2:], rtol=1e-6, atol=0)


@pytest.mark.parametrize("wrong", [torch.nan, torch.inf, -torch.inf])
def test_what_is_not_finite_does_not_look_like_a_number(kernels, wrong):
    x = rows(3, 40)
    x[1, 17] = wrong
    found = widened(x)
    assert not found[1].isfinite().any() and found[[0, 2]].isfinite().all()
