"""ELU against torch's in float64, on every vector path."""

import pytest
import torch

from hpcgnn.kernels import elu


@pytest.mark.parametrize("width", [1, 3, 8, 31, 64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_elu(kernels, dtype, width):
    x = torch.randn(300, width, dtype=dtype, generator=torch.Generator().manual_seed(width)) * 20
    x[0], x[1], x[2] = -torch.inf, torch.inf, 0.0
    right = torch.nn.functional.elu(x.double())
    out = torch.full((300, width + 2), 7, dtype=dtype)
    elu(out[:, 1:-1], x)
    torch.testing.assert_close(out[:, 1:-1].double(), right, rtol=2e-7, atol=2e-7 if dtype == torch.float32 else 1e-15)
    assert (out[:, 0] == 7).all() and (out[:, -1] == 7).all(), "nothing beside the columns is touched"
    in_place = x.clone()
    elu(in_place, in_place)
    assert torch.equal(in_place, out[:, 1:-1])


def test_nan_stays_and_wrong_arguments_are_refused(kernels):
    x = torch.full((2, 5), torch.nan)
    elu(x, x)
    assert x.isnan().all()
    with pytest.raises(ValueError, match="out"):
        elu(torch.zeros(2, 4), x)
    with pytest.raises(ValueError, match="float32"):
        elu(x.bfloat16(), x.bfloat16())
