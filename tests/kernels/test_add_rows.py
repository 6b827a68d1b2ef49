"""`add_rows` against a loop: order of sums, threads, types, layouts, and memory around the rows."""

import numpy as np
import pytest
import torch

from hpcgnn.kernels import add_rows

TYPES = [torch.float32, torch.float64, torch.bfloat16]
ROWS, ADDED = 300, 900


def inputs(dtype, width, distinct, seed=1):
    """(out, index, x, place)."""
    random = np.random.default_rng(seed)
    count = ROWS // 2 if distinct else ADDED
    index = random.permutation(ROWS)[:count] if distinct else (ROWS * random.random(count) ** 3).astype(int)
    out = torch.from_numpy(random.standard_normal((ROWS, width))).to(dtype)
    x = torch.from_numpy(random.standard_normal((count, width + 3))).to(dtype)[:, :width]
    place = torch.from_numpy(random.integers(0, count, count, dtype=np.int32))
    return out, torch.from_numpy(index.astype(np.int32)), x, place


def one_by_one(out, index, x, place):
    out = out.clone()
    for i, row in enumerate(index.tolist()):
        out[row] = out[row] + x[i if place is None else int(place[i])]
    return out


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("width", [3, 47, 256])
@pytest.mark.parametrize("distinct", [False, True])
@pytest.mark.parametrize("picked", [False, True])
def test_add_rows(kernels, dtype, width, distinct, picked):
    out, index, x, place = inputs(dtype, width, distinct)
    place = place if picked else None
    expected = one_by_one(out, index, x, place)
    add_rows(out, index, x, place=place, distinct=distinct)
    assert torch.equal(out, expected), "the same bits as one after another"
