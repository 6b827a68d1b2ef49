"""The product of many rows with weights, against float64, and the memory it touches."""

import pytest
import torch

from hpcgnn.kernels import multiply

SIZES = [(0, 4, 5), (4, 5, 0), (4, 0, 5), (1, 1, 1), (5, 16, 16), (6, 3, 17), (47, 40, 15), (48, 17, 31), (49, 64, 42)]
SIZES += [(300, 128, 264), (103, 256, 40), (12, 40, 17), (97, 260, 31), (2101, 9, 33), (4200, 24, 264)]


OWN = ["avx2 own", "avx512 own"]
some_products = pytest.mark.parametrize("kernels", ["reference", *OWN], indirect=True)
own_products = pytest.mark.parametrize("kernels", OWN, indirect=True)


def matrices(rows, depth, width, gap=3):
    """x and out, whose rows are further apart than they are long, in wider ones of NaN; w."""
    draw = torch.Generator().manual_seed(rows + depth)
    wide = [torch.full((rows, columns + gap), torch.nan) for columns in (depth, width)]
    wide[0][:, :depth] = torch.randn(rows, depth, generator=draw)
    return wide[0][:, :depth], wide[1][:, :width], torch.randn(depth, width, generator=draw), wide[1]


@some_products
@pytest.mark.parametrize("how", ["plain", "bias", "add", "narrow"])
@pytest.mark.parametrize("rows, depth, width", SIZES)
def test_product(kernels, threads, rows, depth, width, how):
    x, out, w, around = matrices(rows, depth, width, 3 + rows % 2)
    if how == "narrow":
        x.copy_(x.bfloat16())
    bias = torch.linspace(-1, 1, width) if how == "bias" else None
    wanted = x.double() @ w.double()
    if how == "bias":
        wanted += bias.double()
    if how == "add":
        out[:] = torch.linspace(0, 1, width)
        wanted += out.double()
    narrow = torch.nn.functional.pad(x, (0, 3 + rows % 2)).bfloat16()[:, :depth] if how == "narrow" else x
    multiply(out, narrow, w, bias, how == "add")
    size = x.abs() @ w.abs() + 1
    assert ((out.double() - wanted).abs() <= 1e-6 * size).all()
    assert around[:, width:].isnan().all(), "nothing beside the columns is touched"
    wide = torch.full((depth, width + 5), torch.nan)
    wide[:, 2:-3] = w
    for same in (w.t().contiguous().t(), wide[:, 2:-3]):
        again = torch.full((rows, width), torch.nan) if how != "add" else torch.linspace(0, 1, width).repeat(rows, 1)
        multiply(again, narrow, same, bias, how == "add")
        torch.testing.assert_close(again, out, rtol=1e-5, atol=1e-5)
        if kernels is not None:
            assert torch.equal(again, out), "weights of any strides, to the same bits"


@own_products
def test_rows_do_not_depend_on_their_place_or_the_threads(kernels, set_threads):
    """So a node's row is the same whatever rank has it, and among whichever other rows."""
    x, out, w, _ = matrices(1000, 96, 40)
    found = []
    for threads in (1, 2, 3):
        set_threads(threads)
        multiply(out, x, w)
        found.append(out.clone())
    multiply(out[:7], x[500:507], w)
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])
    assert torch.equal(out[:7], found[0][500:507])


@some_products
def test_infinities_and_nan_stay(kernels):
    x, out, w, _ = matrices(20, 8, 18)
    x[3, 2], x[4, 1] = torch.inf, torch.nan
    multiply(out, x, w)
    assert out[4].isnan().all() and out[3].isinf().all() and out[[0, 1, 2, 5]].isfinite().all()
