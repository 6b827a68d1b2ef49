"""`pack`, and the check of a block's indices."""

import numpy as np
import pytest
import torch

from hpcgnn.kernels import check_block, pack


def test_rounding_to_bfloat16_is_torchs(kernels):
    bits = torch.from_numpy(np.random.default_rng(2).integers(0, 2**32, 40_000, dtype=np.uint32).view(np.float32))
    special = torch.tensor([0.0, -0.0, float("inf"), -float("inf"), float("nan"), 3.4e38, 1e-45, 1.00390625])
    x = torch.cat([bits, special])[None]
    out = torch.empty_like(x, dtype=torch.bfloat16)
    pack(out, x, torch.zeros(1, dtype=torch.int32), torch.ones(1))
    expected = x.to(torch.bfloat16)
    assert torch.equal(out.isnan(), expected.isnan())
    assert torch.equal(out[~out.isnan()].view(torch.int16), expected[~expected.isnan()].view(torch.int16))


INDPTR, INDICES, ROWS = [0, 2, 2, 5], [0, 3, 1, 2, 3], [0, 4, 5]


@pytest.mark.parametrize(
    "indptr, indices, rows, message",
    [
        (INDPTR, INDICES, ROWS, None),
        ([2, 2, 2, 5], [9, 9, 1, 2, 3, 9], ROWS, None),  # entries outside [indptr[0], indptr[-1]) are not looked at
        ([-1, 2, 2, 5], INDICES, ROWS, "indptr must start at 0"),
        ([0, 2, 1, 5], INDICES, ROWS, "indptr must not decrease .* position 1"),
        ([0, 2, 2, 6], INDICES, ROWS, "indptr must not exceed"),
        (INDPTR, INDICES, [0, 4, 6], "rows must lie .* position 2"),
        (INDPTR, INDICES, [-1, 4, 5], "rows must lie .* position 0"),
        (INDPTR, INDICES, [0, 4, 4], "rows must increase .* position 2"),
        (INDPTR, [0, 3, 4, 2, -1], ROWS, "indices must lie .* position 2, near .3, 4, 2."),
        (INDPTR, [0, 3, 1, 2, -1], ROWS, "indices must lie .* position 4"),
    ],
)
def test_check_block(indptr, indices, rows, message):
    tensors = torch.tensor(indptr), torch.tensor(indices, dtype=torch.int32), torch.tensor(rows, dtype=torch.int32)
    if message is None:
        check_block(*tensors, num_rows=6, num_sources=4)
    else:
        with pytest.raises(ValueError, match=message):
            check_block(*tensors, num_rows=6, num_sources=4)


def test_check_block_without_rows_needs_every_row():
    with pytest.raises(ValueError, match="expected 6 entries for 5 rows, got 4"):
        check_block(torch.tensor(INDPTR), torch.tensor(INDICES, dtype=torch.int32), None, 5, 4)
