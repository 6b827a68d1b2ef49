"""Products of factors rounded to bfloat16: exact where rounding changes nothing, else those of the rounded factors."""

import pytest
import torch

from hpcgnn.kernels import Elu, dropout, elu, multiply, project, project_backward, stream_key

# The path is that of what surrounds the products.
pytestmark = pytest.mark.parametrize("kernels", ["avx2 rounded", "avx512 rounded"], indirect=True)

KEY = stream_key(7, 1, 2, 3)
# Around the rows of a block and those in registers, panels of columns, pairs of rows and columns, and shares of the
# rows.
SIZES = [(1, 1, 1), (5, 7, 16), (12, 40, 17), (23, 2, 48), (47, 33, 15), (49, 16, 42), (97, 260, 31), (2101, 9, 33)]
SIZES += [(4200, 24, 264)]


def numbers(draw, *shape, exact=True, gap=0):
    """Of bfloat16 if `exact`; rows further apart than they are long, in a wider matrix of NaN."""
    wide = torch.full((shape[0], shape[1] + gap), torch.nan)
    here = wide[:, : shape[1]]
    here[:] = torch.randn(*shape, generator=draw)
    return here.copy_(here.bfloat16()) if exact else here


def close(found, wanted, terms):
    torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=2e-6 * max(float(terms), 1) ** 0.5)


@pytest.mark.parametrize("how", ["plain", "bias", "add", "narrow"])
@pytest.mark.parametrize("rows, depth, width", SIZES)
def test_product(kernels, threads, rows, depth, width, how):
    draw = torch.Generator().manual_seed(rows)
    x, w, y = numbers(draw, rows, depth, gap=3), numbers(draw, depth, width), numbers(draw, rows, width, gap=5)
    bias = torch.randn(width, generator=draw) if how == "bias" else None
    wanted = x.double() @ w.double() + (y.double() if how == "add" else 0 if bias is None else bias.double())
    again, odd = y.clone(), numbers(draw, rows, depth, gap=4)
    if how == "narrow":  # rows that are pairs as they stand, unless an odd number of them lies between two
        x = x.bfloat16() if rows % 2 else odd.copy_(x).bfloat16()
    multiply(y, x, w, bias, how == "add")
    close(y, wanted, depth)
    multiply(again, x, w.t().contiguous().t(), bias, how == "add")
    assert torch.equal(again, y), "weights of any strides, to the same bits"


def test_factors_are_rounded_to_nearest(kernels):
    draw = torch.Generator().manual_seed(1)
    x, w = numbers(draw, 200, 50, exact=False), numbers(draw, 50, 30, exact=False)
    x[0, :4] = torch.tensor([1 + 2.0**-8, 1 + 3 * 2.0**-8, -1 - 2.0**-8, 1 + 2.0**-7 + 2.0**-20])
    for other in (w, w.t().contiguous().t()):
        y, again = torch.empty(200, 30), torch.empty(200, 30)
        multiply(y, x, other)
        multiply(again, x.bfloat16().float(), w.bfloat16().float())
        assert torch.equal(y, again)


@pytest.mark.parametrize("wanted", ["both", "add", "weights", "narrow"])
@pytest.mark.parametrize("rows, depth, width", SIZES)
def test_gradients(kernels, threads, rows, depth, width, wanted):
    draw = torch.Generator().manual_seed(rows)
    x, w = numbers(draw, rows, depth, gap=3), numbers(draw, depth, width)
    g, gx, g_weight = numbers(draw, rows, width, gap=5), numbers(draw, rows, depth, gap=3), numbers(draw, depth, width)
    right = g.double() @ w.double().t() + (gx.double() if wanted == "add" else 0)
    right_of_weights = g_weight.double() + x.double().t() @ g.double()
    if wanted == "narrow":
        x, g = x.bfloat16(), g.bfloat16()
    project_backward(None if wanted == "weights" else gx, g_weight, x, g, w, add=wanted == "add")
    close(g_weight, right_of_weights, rows)
    if wanted != "weights":
        close(gx, right, width)


@pytest.mark.parametrize("p", [0.0, 0.4])
def test_through_elu_and_dropout(kernels, set_threads, p):
    """What was entered is rounded, and so is the gradient; its own gradient is that of numbers that were not."""
    draw = torch.Generator().manual_seed(3)
    x, w, g = numbers(draw, 3001, 34, exact=False), numbers(draw, 34, 45), numbers(draw, 3001, 45)
    rule, entered = Elu(torch.arange(3001) * 5, KEY, p), torch.empty_like(x)
    elu(entered, x)
    if p:
        dropout(entered, entered, rule.ids, KEY, p)
    mask = torch.ones_like(x)
    if p:
        dropout(mask, mask, rule.ids, KEY, p)
    y, gx, found = torch.empty(3001, 45), torch.empty_like(x), []
    project(y, x, w, rule)
    close(y, entered.bfloat16().double() @ w.double(), 34)
    slope = torch.where(x > 0, 1.0, x.double().exp())
    for threads in (1, 2, 3):
        set_threads(threads)
        g_weight = torch.zeros_like(w)
        project_backward(gx, g_weight, x, g, w, rule)
        found.append(torch.cat([gx, g_weight.t()]))
    close(g_weight, entered.bfloat16().double().t() @ g.double(), 3001)
    close(gx, g.double() @ w.double().t() * mask * slope, 45)
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2]), "no bit depends on the threads"
