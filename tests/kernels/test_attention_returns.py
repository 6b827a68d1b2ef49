"""What returns over an edge may be added elsewhere than at the edge's column, with any number of threads."""

import pytest
import torch

from hpcgnn import kernels


@pytest.mark.parametrize("threads", [1, 3])
def test_returns_go_where_they_are_told(threads):
    rows, columns, heads, width = 40, 30, 2, 3
    random = torch.Generator().manual_seed(1)
    counts = torch.randint(0, 9, (rows,), generator=random)
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    indices = torch.randint(0, columns, (int(indptr[-1]),), generator=random, dtype=torch.int32)
    z_src = torch.randn(rows, heads * width + heads, generator=random)
    remote = torch.randn(columns, heads * width + 3 * heads, generator=random)
    moved = torch.randperm(columns + 5, generator=random)[:columns].int()  # where each column's are added

    def backward(size, returns):
        made = torch.zeros(rows, heads * width), torch.zeros(rows, heads), torch.zeros(size, heads)
        kernels.attend_backward(*made, z_src, remote, indptr, indices, heads=heads, slope=0.2, returns=returns)
        return made

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        usual, told = backward(columns, None), backward(columns + 5, moved[indices.long()].contiguous())
    finally:
        torch.set_num_threads(before)
    assert torch.equal(told[0], usual[0]) and torch.equal(told[1], usual[1]) and usual[2].any()
    assert torch.equal(told[2][moved.long()], usual[2]) and told[2].count_nonzero() == usual[2].count_nonzero()
