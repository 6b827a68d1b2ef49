"""Batch normalisation by columns, against torch's operations in float64, on every vector path and number of threads."""

import pytest
import torch

from hpcgnn.kernels import column_sums, norm_columns, norm_columns_gradient, norm_gradient_sums

ROUNDED = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 1e-2}


def beside(x):
    """x as columns of a wider matrix, whose others are 7."""
    wide = torch.full((x.shape[0], x.shape[1] + 2), 7, dtype=x.dtype)
    wide[:, 1:-1] = x
    return wide, wide[:, 1:-1]


# Less than a share of rows, more, and more than the shares that are added at a time.
@pytest.mark.parametrize("rows, width", [(7, 31), (513, 16), (512 * 256 + 5, 3)])
@pytest.mark.parametrize("dtype", list(ROUNDED))
def test_against_float64(kernels, dtype, rows, width):
    draw = torch.Generator().manual_seed(rows)
    near = {"rtol": ROUNDED[dtype], "atol": ROUNDED[dtype]}
    _, x = beside((torch.randn(rows, width, generator=draw) + 3).to(dtype))
    _, gy = beside(torch.randn(rows, width, generator=draw).to(dtype))
    computed = torch.float64 if dtype == torch.float64 else torch.float32
    mean, inverse, weight, bias, factor = torch.rand(5, width, dtype=torch.float64, generator=draw).to(computed) + 0.5
    normal = (x.double() - mean) * inverse

    plain, squares, both = torch.ones(width).double(), torch.ones(width).double(), torch.ones(2 * width).double()
    column_sums(plain, x)
    column_sums(squares, x, mean)
    norm_gradient_sums(both, gy, x, mean, inverse)
    scale = max(1, rows) * ROUNDED[torch.float64 if dtype == torch.float64 else torch.float32]
    torch.testing.assert_close(plain, 1 + x.double().sum(0), rtol=1e-12, atol=1e-9)
    torch.testing.assert_close(squares, 1 + (x.double() - mean).square().sum(0), rtol=1e-6, atol=scale)
    wanted = torch.cat([gy.double().sum(0), (gy.double() * normal).sum(0)])
    torch.testing.assert_close(both, 1 + wanted, rtol=1e-6, atol=scale)

    around, y = beside(torch.zeros_like(x))
    norm_columns(y, x, mean, inverse, weight, bias)
    torch.testing.assert_close(y.double(), normal * weight + bias, **near)
    norm_columns_gradient(y, gy, x, mean, inverse, weight, bias, factor)
    torch.testing.assert_close(y.double(), (gy.double() - weight - normal * bias) * factor, **near)
    assert (around[:, [0, -1]] == 7).all(), "nothing beside the columns is touched"
