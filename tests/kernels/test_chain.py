"""Chains of square maps with an activation before each, against autograd in float64."""

import pytest
import torch
from torch.nn import functional

from hpcgnn.extras.meshes.chain import chain, chain_backward

SIZES = [(0, 3, 16), (1, 1, 16), (47, 2, 32), (49, 6, 32), (300, 1, 5), (2500, 3, 16), (103, 2, 128), (97, 2, 40)]
some_chains = pytest.mark.parametrize("kernels", ["reference", "avx2 own", "avx512 own"], indirect=True)


def spaced(rows, width, gap, draw):
    """Rows further apart than they are long, in a wider matrix of NaN."""
    wide = torch.full((rows, width + gap), torch.nan)
    wide[:, :width] = torch.randn(rows, width, generator=draw)
    return wide[:, :width], wide[:, width:]


def picked_rows(rows, gap, width, draw):
    """(some rows more, an index of `rows` of them, what is beside them)."""
    matrix, beside = spaced(rows // 2 + 3, width, gap, draw)
    return matrix, torch.randint(0, len(matrix), (rows,), generator=draw, dtype=torch.int32), beside


@some_chains
@pytest.mark.parametrize("elu, added", [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize("rows, maps, width", SIZES)
def test_chain(kernels, threads, rows, maps, width, elu, added):
    draw = torch.Generator().manual_seed(rows + width)
    (y, beside_y), (gz, beside_gz) = spaced(rows, width, 4, draw), spaced(rows, width, 0, draw)
    (x, beside_x), (gx, beside_gx) = spaced(rows, width, 2, draw), spaced(rows, width, 6, draw)
    z, z_index, beside_z = picked_rows(rows, 3, width, draw)
    gy, gy_index, _ = picked_rows(rows, 5, width, draw)
    more, more_index, _ = picked_rows(rows, 0, width, draw)
    weights = torch.randn(maps * width, width, generator=draw) / width**0.5
    biases = torch.randn(maps * width, generator=draw)
    own, (scale, shift) = (
        torch.randn(width, width, generator=draw) / width**0.5,
        torch.randn(2, width, generator=draw),
    )
    epsilon = 1e-3
    if not added:
        z, gy = z[z_index], gy[gy_index]
    first = (z[z_index] if added else z).double().requires_grad_()
    inputs = [first, *(each.double().requires_grad_() for each in (weights, biases, x, own, scale, shift))]
    wanted = first + inputs[3] @ inputs[4] + more[more_index].double() if added else first
    for weight, bias in zip(inputs[1].split(width), inputs[2].split(width)):
        wanted = (functional.elu if elu else functional.relu)(wanted) @ weight + bias
    if added:
        wanted = inputs[3] + functional.layer_norm(wanted, (width,), *inputs[5:], epsilon)
    wanted.backward((gy[gy_index] if added else gy).double())
    given = {"z_index": z_index, "more": more, "more_index": more_index, "x": x, "own": own} if added else {}
    given |= {"scale": scale, "epsilon": epsilon} if added else {}
    chain(y, z, weights, biases, elu=elu, **given, shift=shift if added else None)
    sums = [torch.ones_like(weights), torch.ones_like(biases), torch.ones_like(own), torch.ones(2, width)]
    given |= {"g_own": sums[2], "g_norm": sums[3], "gx": gx, "gy_index": gy_index} if added else {}
    chain_backward(gz, *sums[:2], gy, z, weights, biases, elu=elu, **given)
    found = [y, gz, sums[0] - 1, sums[1] - 1, gx, sums[2] - 1, *(sums[3] - 1)]
    known = [wanted.detach(), *(each.grad for each in inputs)]
    for mine, right in list(zip(found, known, strict=True))[: None if added else 4]:
        torch.testing.assert_close(mine.double(), right, rtol=0, atol=1e-5 * max(1, rows) ** 0.5)
    assert all(each.isnan().all() for each in (beside_z, beside_y, beside_gz, beside_x, beside_gx)), (
        "nothing beside the columns is touched"
    )


@some_chains
@pytest.mark.parametrize("elu", [False, True])
def test_what_is_not_a_number_stays_so(kernels, elu):
    """Or a run would go on with weights that are none."""
    z, y, weights = torch.ones(5, 16), torch.empty(5, 16), torch.ones(16, 16)
    z[3, 7] = torch.nan
    chain(y, z, weights, torch.zeros(16), elu=elu)
    assert y.isnan().any(1).tolist() == [False, False, False, True, False]
    gz, sums = torch.empty_like(z), (torch.zeros(16, 16), torch.zeros(16))
    chain_backward(gz, *sums, torch.ones(5, 16), z, weights, torch.zeros(16), elu=elu)
    assert sums[0].isnan().any()


@pytest.mark.parametrize("kernels", ["avx2 own", "avx512 own"], indirect=True)
def test_no_bit_depends_on_the_threads(kernels, set_threads):
    draw, found = torch.Generator().manual_seed(1), []
    z, gy, x, weights, own = (torch.randn(rows, 32, generator=draw) for rows in (5000, 5000, 5000, 96, 32))
    for threads in (1, 2, 3):
        set_threads(threads)
        y, gz, gx, g_weights, g_own = (torch.zeros(rows, 32) for rows in (5000, 5000, 5000, 96, 32))
        g_biases, g_norm, biases = torch.zeros(96), torch.zeros(2, 32), weights[:3].flatten()
        both = {"elu": True, "x": x, "own": own, "scale": x[0]}
        chain(y, z, weights, biases, shift=x[1], **both)
        sums = {"gx": gx, "g_own": g_own, "g_norm": g_norm}
        chain_backward(gz, g_weights, g_biases, gy, z, weights, biases, **both, **sums)
        found.append((y, gz, g_weights, g_biases, *sums.values()))
    assert all(torch.equal(a, b) for other in found[1:] for a, b in zip(found[0], other, strict=True))
