"""Chains of square maps with an activation before each, against autograd in float64."""

import pytest
import torch
from torch.nn import functional

from hpcgnn.kernels import chain, chain_backward

SIZES = [(0, 3, 16), (1, 1, 16), (47, 2, 32), (49, 6, 32), (300, 1, 5), (2500, 3, 16), (103, 2, 128), (97, 2, 40)]
some_chains = pytest.mark.parametrize("kernels", ["reference", "avx2 own", "avx512 own"], indirect=True)


def spaced(rows, width, gap, draw):
    """Rows further apart than they are long, in a wider matrix of NaN."""
    wide = torch.full((rows, width + gap), torch.nan)
    wide[:, :width] = torch.randn(rows, width, generator=draw)
    return wide[:, :width], wide[:, width:]


@some_chains
@pytest.mark.parametrize("elu", [False, True])
@pytest.mark.parametrize("rows, maps, width", SIZES)
def test_chain(kernels, threads, rows, maps, width, elu):
    draw = torch.Generator().manual_seed(rows + width)
    (z, beside_z), (gy, _) = spaced(rows, width, 3, draw), spaced(rows, width, 5, draw)
    (y, beside_y), (gz, beside_gz) = spaced(rows, width, 4, draw), spaced(rows, width, 0, draw)
    weights = torch.randn(maps * width, width, generator=draw) / width**0.5
    biases = torch.randn(maps * width, generator=draw)
    inputs = [each.double().requires_grad_() for each in (z, weights, biases)]
    wanted = inputs[0]
    for weight, bias in zip(inputs[1].split(width), inputs[2].split(width)):
        wanted = (functional.elu if elu else functional.relu)(wanted) @ weight + bias
    wanted.backward(gy.double())
    kept, alone = torch.full((maps * rows, width), torch.nan), torch.empty(rows, width)
    chain(y, z, weights, biases, kept, elu=elu)
    chain(alone, z, weights, biases, elu=elu)
    assert torch.equal(y, alone), "whether anything is kept changes nothing"
    sums = torch.ones_like(weights), torch.ones_like(biases)
    chain_backward(gz, *sums, gy, weights, kept, elu=elu)
    found = (y, gz, *(each - 1 for each in sums))
    for mine, right in zip(found, (wanted.detach(), *(each.grad for each in inputs)), strict=True):
        torch.testing.assert_close(mine.double(), right, rtol=0, atol=1e-5 * max(1, rows) ** 0.5)
    assert all(each.isnan().all() for each in (beside_z, beside_y, beside_gz)), "nothing beside the columns is touched"


@pytest.mark.parametrize("kernels", ["avx2 own", "avx512 own"], indirect=True)
def test_no_bit_depends_on_the_threads(kernels, set_threads):
    draw, found = torch.Generator().manual_seed(1), []
    z, gy, weights = (torch.randn(rows, 32, generator=draw) for rows in (5000, 5000, 96))
    for threads in (1, 2, 3):
        set_threads(threads)
        y, gz, kept, g_weights = (torch.zeros(rows, 32) for rows in (5000, 5000, 15000, 96))
        g_biases = torch.zeros(96)
        chain(y, z, weights, g_biases, kept, elu=True)
        chain_backward(gz, g_weights, g_biases, gy, weights, kept, elu=True)
        found.append((y, gz, g_weights, g_biases))
    assert all(torch.equal(a, b) for other in found[1:] for a, b in zip(found[0], other, strict=True))
