"""Kernels on rows between layers, against torch's own in float64, on every vector path."""

import pytest
import torch

from hpcgnn.kernels import elu, elu_gradient, relu_gradient


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_elu_of_numbers_of_every_kind(kernels, dtype):
    x = torch.randn(300, 31, dtype=dtype, generator=torch.Generator().manual_seed(1)) * 20
    x[0], x[1], x[2], x[3] = -torch.inf, torch.inf, 0.0, torch.nan
    right, near = torch.nn.functional.elu(x.double()), 2e-7 if dtype == torch.float32 else 1e-15
    out = torch.empty_like(x)
    elu(out, x)
    torch.testing.assert_close(out.double(), right, rtol=2e-7, atol=near, equal_nan=True)
    elu(x, x)
    torch.testing.assert_close(x, out, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_relu_gradient_of_numbers_of_every_kind(kernels, dtype):
    draw = torch.Generator().manual_seed(1)
    y = torch.randn(600, 34, generator=draw).to(dtype)[:, 1:-2].clamp_(min=0)
    gradient = torch.randn(600, 31, dtype=torch.promote_types(dtype, torch.float32), generator=draw)
    gradient[0], y[1], gradient[1], y[2], gradient[2] = torch.inf, 0, torch.nan, torch.nan, 3
    wanted = torch.where(y <= 0, 0, gradient * 1.25).to(dtype)  # NaN is no reason to stop
    relu_gradient(y, gradient, y, 1.25)
    assert torch.equal(y, wanted), "over the result"


def rows_of(width, dtype, count=4, rows=1300):
    """Matrices with columns of others on both sides."""
    draw = torch.Generator().manual_seed(width)
    return [torch.randn(rows, width + 3, dtype=dtype, generator=draw)[:, 1:-2] for _ in range(count)]


@pytest.mark.parametrize("rows", [1, 1300])
@pytest.mark.parametrize("heads, width", [(1, 40), (4, 64), (3, 13)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_elu_gradient(kernels, dtype, heads, width, rows):
    gy, x, out = rows_of(heads * width, dtype, 3, rows)
    y = torch.nn.functional.elu(x)
    wanted = x.double().clone().requires_grad_()
    torch.nn.functional.elu(wanted).backward(gy.double())
    wanted, bias = wanted.grad, gy.new_ones(heads * width).cumsum(0) / 10
    dots, sums = torch.empty(rows, heads, dtype=dtype), gy.new_full((heads * width,), 2)
    elu_gradient(out, gy, y, x, dots, bias=bias, sums=sums)
    right = {"rtol": 1e-5, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 1e-12, "atol": 1e-11}
    torch.testing.assert_close(out.double(), wanted, **right)
    torch.testing.assert_close(sums.double(), 2 + wanted.sum(0), **right)
    product = (wanted * (x.double() - bias.double())).unflatten(1, (heads, -1)).sum(2)
    torch.testing.assert_close(dots.double(), product, **right)
    found, plain = out.clone(), torch.empty_like(dots)
    elu_gradient(out, gy, y, x, plain)
    product = (wanted * x.double()).unflatten(1, (heads, -1)).sum(2)
    torch.testing.assert_close(plain.double(), product, **right)
    dots_again, sums_again = torch.empty_like(dots), gy.new_full((heads * width,), 2)
    elu_gradient(x, gy, y, x, dots_again, bias=bias, sums=sums_again)
    assert torch.equal(x, found) and torch.equal(dots_again, dots), "over x itself"
    assert torch.equal(sums_again, sums)
    summed = gy.new_full((heads * width,), 2)
    elu_gradient(gy, gy, y, sums=summed)
    assert torch.equal(gy, found) and torch.equal(summed, sums), "over gy, without inner products"
    elu_gradient(out, gy, None, y, dots, bias=bias, sums=summed.zero_())
    assert torch.equal(out, gy), "without ELU"
    product = (gy.double() * (y.double() - bias.double())).unflatten(1, (heads, -1)).sum(2)
    torch.testing.assert_close(dots.double(), product, **right)
    torch.testing.assert_close(summed.double(), gy.double().sum(0), **right)
