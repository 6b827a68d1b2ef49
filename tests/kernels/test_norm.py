"""Batch normalisation: moments in one pass, and what follows the norm in the same pass."""

import pytest
import torch

from hpcgnn import kernels


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("rows", [0, 1, 511, 3000])
def test_moments_keep_their_digits_beside_a_large_mean(dtype, rows):
    x = (torch.randn(rows, 7, generator=torch.Generator().manual_seed(1)) + 300).to(dtype)
    sums = torch.full((14,), torch.nan, dtype=torch.float64)
    kernels.column_moments(sums, x)
    exact = x.double()
    squares = (exact - exact.mean(0)).square().sum(0) if rows else torch.zeros(7, dtype=torch.float64)
    torch.testing.assert_close(sums, torch.cat([exact.sum(0), squares]), rtol=3e-7, atol=1e-9)


def test_moments_of_what_is_no_number_are_none():
    sums = torch.zeros(4, dtype=torch.float64)
    kernels.column_moments(sums, torch.tensor([[1.0, torch.nan], [2.0, torch.inf]]))
    assert sums[0] == 3
    assert sums[2] == pytest.approx(0.5)
    assert not torch.isfinite(sums[1::2]).any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("width", [5, 40, 300])
@pytest.mark.parametrize("p", [0.0, 0.4])
def test_relu_and_dropout_behind_the_norm_are_those_alone(dtype, width, p):
    draws = torch.Generator().manual_seed(2)
    x, ids = torch.randn(700, width, generator=draws).to(dtype), torch.randperm(10_000, generator=draws)[:700]
    vectors = [torch.randn(width, generator=draws).to(kernels.accumulation_dtype(dtype)) for _ in range(4)]
    at_once, apart = torch.empty_like(x), torch.empty_like(x)
    kernels.norm_columns(at_once, x, *vectors, ids=ids, key=9, p=p, relu=True)
    kernels.norm_columns(apart, x, *vectors)
    assert (apart < 0).any()
    if p:
        kernels.dropout(apart, apart, ids, 9, p, relu=True)
    else:
        apart.clamp_min_(0)
    assert torch.equal(at_once, apart)
