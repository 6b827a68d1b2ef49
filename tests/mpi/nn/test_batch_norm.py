"""Batch normalisation over ranks against torch's on the whole matrix."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from hpcgnn.memory.arena import Arena
from hpcgnn.nn.norm import BatchNorm
from hpcgnn.ops.row_tiles import tiles_of

N, WIDTH = 53, 6


@pytest.fixture(autouse=True)
def some_rows_at_a_time():
    with tiles_of(16):
        yield


def graph_of(comm):
    return SimpleNamespace(num_nodes=N, total=comm.total, arena=Arena())


@pytest.mark.parametrize("kind", ["even", "one rank"])
def test_outputs_gradients_and_running_statistics(comm, kind):
    """Of an even share of the rows, and of all rows on the last rank, the others being empty."""
    rows = slice(comm.rank, N, comm.size) if kind == "even" else slice(N * (comm.rank < comm.size - 1), N)
    random, graph = np.random.default_rng(0), graph_of(comm)
    x, g = torch.from_numpy(random.standard_normal((2, N, WIDTH)) * 3 + 1)
    state = dict(zip(("weight", "bias"), torch.from_numpy(random.standard_normal((2, WIDTH)))))
    layer, expected = BatchNorm(WIDTH, dtype=torch.float64), torch.nn.BatchNorm1d(WIDTH, dtype=torch.float64)
    layer.load_state_dict(state, strict=False), expected.load_state_dict(state, strict=False)
    for _ in range(3):
        mine, whole = x[rows].clone().requires_grad_(), x.clone().requires_grad_()
        y, right = layer(graph, mine), expected(whole)
    y.backward(g[rows]), right.backward(g)
    close = {"rtol": 0, "atol": 1e-10}
    torch.testing.assert_close(y, right[rows], **close)
    torch.testing.assert_close(mine.grad, whole.grad[rows], **close)
    for name in state:  # local shares, which the all-reduce of the gradients adds up
        torch.testing.assert_close(comm.total(getattr(layer, name).grad), getattr(expected, name).grad, **close)
    torch.testing.assert_close(layer.running_mean, expected.running_mean, **close)
    torch.testing.assert_close(layer.running_var, expected.running_var, **close)
    layer.eval(), expected.eval()
    torch.testing.assert_close(layer(graph, x[rows]), expected(x)[rows], **close)


# What is left is the rounding of the mean to float32, 3e-5 of a spread of 0.1.
@pytest.mark.parametrize("dtype, mean, error", [(torch.float32, 1000, 1e-3), (torch.float64, 1e6, 1e-6)], ids=str)
def test_large_mean_and_small_spread(comm, dtype, mean, error):
    """The variance as E[x²] − E[x]² has no right digit here: in float32 the squares are 1e8 times the variance."""
    x = torch.from_numpy(np.random.default_rng(1).standard_normal((N, WIDTH)) * 0.1 + mean).to(dtype)
    y = BatchNorm(WIDTH, dtype=dtype)(graph_of(comm), x[comm.rank :: comm.size])
    expected = torch.nn.BatchNorm1d(WIDTH, dtype=torch.float64)(x.double())
    torch.testing.assert_close(y.double(), expected[comm.rank :: comm.size], rtol=0, atol=error)
