"""`gather_largest` and `gather_matching` against numpy: widths, layouts, blocks one after another, ties, NaN."""

import numpy as np
import pytest
import torch
from kernel_oracle import block

from hpcgnn.kernels import gather_largest, gather_matching


def few_values(rows, width, dtype, generator, stride=None):
    """Elements that are often equal, in rows any distance apart with NaN between them."""
    storage = torch.full((rows, stride or width), torch.nan, dtype=dtype)
    storage[:, :width] = torch.from_numpy(generator.integers(-2, 3, (rows, width))).to(dtype)
    return storage[:, :width]


def largest(y, count, x, indptr, indices, rows):
    """The definition, edge by edge, in numpy."""
    for i in range(len(indptr) - 1):
        r = i if rows is None else rows[i]
        for e in range(indptr[i], indptr[i + 1]):
            value = x[indices[e]]
            count[r] = np.where(value > y[r], 1, count[r] + (value == y[r]))
            y[r] = np.maximum(y[r], value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [1, 17, 300])
def test_against_numpy(kernels, dtype, width):
    generator = np.random.default_rng(width)
    y, count = torch.full((40, width), -torch.inf, dtype=dtype), torch.zeros(40, width, dtype=dtype)
    expected_y, expected_count = y.numpy().astype(float), count.numpy().astype(float)
    gradient, expected_gradient = torch.zeros(40, width, dtype=dtype), np.zeros((40, width))
    own = few_values(40, width, dtype, generator)
    for rows in (None, torch.arange(1, 40, 3, dtype=torch.int32), torch.zeros(0, dtype=torch.int32)):
        num_stored = 40 if rows is None else len(rows)
        indptr, indices = block(num_stored, 25, 4, generator)
        x = few_values(25, 2 * width, dtype, generator, stride=2 * width + 3)
        plain = (indptr.numpy(), indices.numpy(), None if rows is None else rows.numpy())
        gather_largest(y, count, x[:, :width], indptr, indices, rows=rows)
        largest(expected_y, expected_count, x[:, :width].numpy(), *plain)
        gather_matching(gradient, own, x, indptr, indices, rows=rows)
        for i in range(num_stored):
            r = i if rows is None else int(rows[i])
            for j in indices[indptr[i] : indptr[i + 1]]:
                g, value = x[j, :width].numpy(), x[j, width:].numpy()
                expected_gradient[r] += g * (value == own[r].numpy())
    np.testing.assert_array_equal(y.numpy(), expected_y)
    np.testing.assert_array_equal(count.numpy(), expected_count)
    np.testing.assert_array_equal(gradient.numpy(), expected_gradient)


def test_nan_stays(kernels):
    x = torch.tensor([[1.0], [torch.nan], [2.0]])
    y, count = torch.full((1, 1), -torch.inf), torch.zeros(1, 1)
    gather_largest(y, count, x, torch.tensor([0, 3]), torch.arange(3, dtype=torch.int32))
    assert y.isnan().all()
