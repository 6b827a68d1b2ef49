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


def shares(comm, kind):
    """The rows of this rank: an even share, or all on the last rank, the others being empty."""
    return slice(0 if comm.rank == comm.size - 1 else N, N) if kind == "one rank" else slice(comm.rank, N, comm.size)


def normalise(comm, x, weight, bias, rows, steps=1, dtype=torch.float64):
    layer = BatchNorm(WIDTH, dtype=dtype)
    with torch.no_grad():
        layer.weight.copy_(weight)
        layer.bias.copy_(bias)
    graph = SimpleNamespace(num_nodes=N, total=comm.total, arena=Arena())
    for _ in range(steps):
        mine = x[rows].to(dtype).clone().requires_grad_()
        y = layer(graph, mine)
    return layer, graph, mine, y


@pytest.mark.parametrize("kind", ["even", "one rank"])
def test_outputs_gradients_and_running_statistics(comm, kind):
    random = np.random.default_rng(0)
    x, g = torch.from_numpy(random.standard_normal((2, N, WIDTH)) * 3 + 1)
    weight, bias = torch.from_numpy(random.standard_normal((2, WIDTH)))
    rows = shares(comm, kind)
    layer, graph, mine, y = normalise(comm, x, weight, bias, rows, steps=3)
    y.backward(g[rows])
    expected = torch.nn.BatchNorm1d(WIDTH, dtype=torch.float64)
    with torch.no_grad():
        expected.weight.copy_(weight)
        expected.bias.copy_(bias)
    for _ in range(3):
        whole = x.clone().requires_grad_()
        right = expected(whole)
    right.backward(g)
    close = {"rtol": 0, "atol": 1e-10}
    torch.testing.assert_close(y, right[rows], **close)
    torch.testing.assert_close(mine.grad, whole.grad[rows], **close)
    for name in ("weight", "bias"):  # local shares, which the all-reduce of the gradients adds up
        torch.testing.assert_close(comm.total(getattr(layer, name).grad), getattr(expected, name).grad, **close)
    torch.testing.assert_close(layer.running_mean, expected.running_mean, **close)
    torch.testing.assert_close(layer.running_var, expected.running_var, **close)
    layer.eval(), expected.eval()
    torch.testing.assert_close(layer(graph, x[rows]), expected(x)[rows], **close)


def test_large_mean_and_small_spread(comm):
    """The variance as E[x²] − E[x]² has no right digit here: in float32 the squares are 1e8 times the variance."""
    random = np.random.default_rng(1)
    x = torch.from_numpy(random.standard_normal((N, WIDTH)) * 0.1 + 1000).float()
    rows = shares(comm, "even")
    _, _, _, y = normalise(comm, x, torch.ones(WIDTH), torch.zeros(WIDTH), rows, dtype=torch.float32)
    expected = torch.nn.BatchNorm1d(WIDTH, dtype=torch.float64)(x.double())
    # What is left is the rounding of the mean to float32, 3e-5 of a spread of 0.1.
    torch.testing.assert_close(y.double(), expected[rows], rtol=0, atol=1e-3)
    _, _, _, y = normalise(comm, x.double() + 1e6, torch.ones(WIDTH), torch.zeros(WIDTH), rows)
    torch.testing.assert_close(y, expected[rows], rtol=0, atol=1e-6)
