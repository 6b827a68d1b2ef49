"""Activations of numbers of every kind on every vector path; test_tables.py has all other numbers."""

import pytest
import torch

from hpcgnn.kernels import elu, relu_gradient


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
