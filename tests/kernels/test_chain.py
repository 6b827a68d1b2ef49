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
@pytest.mark.parametrize("elu, added", [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize("rows, maps, width", SIZES)
def test_chain(kernels, threads, rows, maps, width, elu, added):
    draw = torch.Generator().manual_seed(rows + width)
    (z, beside_z), (gy, _) = spaced(rows, width, 3, draw), spaced(rows, width, 5, draw)
    (y, beside_y), (gz, beside_gz) = spaced(rows, width, 4, draw), spaced(rows, width, 0, draw)
    weights = torch.randn(maps * width, width, generator=draw) / width**0.5
    biases = torch.randn(maps * width, generator=draw)
    (x, beside_x), (gx, beside_gx) = spaced(rows, width, 2, draw), spaced(rows, width, 6, draw)
    own, (more, scale, shift) = (
        torch.randn(width, width, generator=draw) / width**0.5,
        torch.randn(3, width, generator=draw),
    )
    inputs = [each.double().requires_grad_() for each in (z, weights, biases, x, own, scale, shift)]
    more, epsilon = more.expand(rows, width).contiguous(), 1e-3
    wanted = inputs[0] + inputs[3] @ inputs[4] + more.double() if added else inputs[0]
    for weight, bias in zip(inputs[1].split(width), inputs[2].split(width)):
        wanted = (functional.elu if elu else functional.relu)(wanted) @ weight + bias
    if added:
        wanted = inputs[3] + functional.layer_norm(wanted, (width,), *inputs[5:], epsilon)
    wanted.backward(gy.double())
    kept, alone = torch.full((maps * rows, width), torch.nan), torch.empty(rows, width)
    given = {"x": x, "own": own, "scale": scale} if added else {}
    once = {"more": more, "shift": shift, "epsilon": epsilon} if added else {}
    norm = {"normal": torch.full((rows, width), torch.nan), "inverse": torch.empty(rows)} if added else {}
    chain(y, z, weights, biases, kept, elu=elu, **given, **once, **norm)
    chain(alone, z, weights, biases, elu=elu, **given, **once)
    assert torch.equal(y, alone), "whether anything is kept changes nothing"
    sums = [torch.ones_like(weights), torch.ones_like(biases), torch.ones_like(own), torch.ones(2, width)]
    more_sums = {"g_own": sums[2], "g_norm": sums[3], "gx": gx} if added else {}
    chain_backward(gz, *sums[:2], gy, weights, kept, elu=elu, **given, **norm, **more_sums)
    found = [y, gz, sums[0] - 1, sums[1] - 1, gx, sums[2] - 1, *(sums[3] - 1)]
    known = [wanted.detach(), *(each.grad for each in inputs)]
    for mine, right in list(zip(found, known, strict=True))[: None if added else 4]:
        torch.testing.assert_close(mine.double(), right, rtol=0, atol=1e-5 * max(1, rows) ** 0.5)
    assert all(each.isnan().all() for each in (beside_z, beside_y, beside_gz, beside_x, beside_gx)), (
        "nothing beside the columns is touched"
    )


@pytest.mark.parametrize("kernels", ["avx2 own", "avx512 own"], indirect=True)
def test_no_bit_depends_on_the_threads(kernels, set_threads):
    draw, found = torch.Generator().manual_seed(1), []
    z, gy, x, weights, own = (torch.randn(rows, 32, generator=draw) for rows in (5000, 5000, 5000, 96, 32))
    for threads in (1, 2, 3):
        set_threads(threads)
        y, gz, gx, kept, normal, g_weights, g_own = (
            torch.zeros(rows, 32) for rows in (5000, 5000, 5000, 15000, 5000, 96, 32)
        )
        g_biases, inverse, g_norm, scale = torch.zeros(96), torch.zeros(5000), torch.zeros(2, 32), x[0]
        both = {"elu": True, "x": x, "own": own, "scale": scale, "normal": normal, "inverse": inverse}
        chain(y, z, weights, g_biases, kept, shift=x[1], **both)
        sums = {"gx": gx, "g_own": g_own, "g_norm": g_norm}
        chain_backward(gz, g_weights, g_biases, gy, weights, kept, **both, **sums)
        found.append((y, gz, g_weights, g_biases, *sums.values()))
    assert all(torch.equal(a, b) for other in found[1:] for a, b in zip(found[0], other, strict=True))
