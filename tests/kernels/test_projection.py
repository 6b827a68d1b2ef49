"""Projections and their gradients, in one pass and step by step, against torch's autograd in float64, and the memory
they touch.
"""

import oracle
import pytest
import torch

from hpcgnn.kernels import Elu, Mask, dropout, multiply, one_pass, project, project_backward, project_beside, stream_key

KEY = stream_key(7, 1, 2, 3)
# Around the rows of a block, its panels of columns (125 and the gap: rows that share few sets of a cache), and the
# shares whose sums are made apart.
SIZES = [
    (1, 1, 1),
    (5, 6, 16),
    (47, 12, 15),
    (49, 16, 42),
    (97, 260, 33),
    (97, 16, 125),
    (2100, 8, 17),
    (4200, 24, 264),
    (0, 4, 5),
    (4, 5, 0),
    (4, 0, 5),
]


# How projections of float32 are made: step by step, or in one pass.
pytestmark = pytest.mark.parametrize("kernels", ["avx2 torch", "avx2 own", "avx512 own"], indirect=True)


class Case:
    """A projection: its arguments in wider matrices of NaN, its right result, and all gradients in float64."""

    def __init__(self, rows, depth, width, p, heads=1, gap=3):
        draw = torch.Generator().manual_seed(rows + depth)
        self.wide = [torch.full((rows, columns + gap), torch.nan) for columns in (depth, width, width, depth)]
        self.x, self.y, self.gradient, self.gx = (wide[:, :-gap] for wide in self.wide)
        self.x[:] = torch.randn(rows, depth, generator=draw)
        self.gradient[:] = torch.randn(rows, width, generator=draw)
        self.weight, self.bias = torch.randn(depth, width, generator=draw) / 4, torch.randn(depth, generator=draw)
        if rows % 2:  # of any strides
            self.weight = self.weight.t().contiguous().t()
        self.ids = torch.arange(rows) * 5 + 2
        self.elu = None if p is None else Elu(self.ids, KEY, p)
        x, weight = self.x.double().requires_grad_(), self.weight.double().requires_grad_()
        entered = x if p is None else self._after(x, p)
        self.wanted = entered @ weight
        self.wanted.backward(self.gradient.double())
        self.wanted, self.wanted_gx, self.wanted_g_weight = self.wanted.detach(), x.grad, weight.grad
        self.wanted_dots = (x.grad * (x - self.bias)).detach().unflatten(1, (heads, depth // heads)).sum(-1)
        self.dots, self.sums, self.g_weight = (
            torch.full((rows, heads), torch.nan),
            torch.ones(depth),
            torch.ones(depth, width),
        )

    def _after(self, x, p):
        threshold = round(p * 2**32)
        kept = oracle.random_words(KEY, self.ids.numpy(), self.x.shape[1]) >= threshold
        return torch.nn.functional.elu(x) * torch.from_numpy(kept) / (1 - threshold / 2**32)

    def backward(self, gx=None):
        more = {"dots": self.dots, "bias": self.bias, "sums": self.sums} if self.elu else {}
        gx = self.gx if gx is None else gx
        project_backward(gx, self.g_weight, self.x, self.gradient, self.weight, self.elu, **more)
        return gx


def close(found, wanted, size):
    """Within the loss of float32 in sums of numbers of this size."""
    torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=2e-6 * max(float(size), 1))


@pytest.mark.parametrize("p", [None, 0.0, 0.4])
@pytest.mark.parametrize("rows, depth, width", SIZES)
def test_projection_and_gradients(kernels, threads, rows, depth, width, p):
    p = p if depth else None
    case = Case(rows, depth, width, p, heads=2 if depth % 2 == 0 else 1)
    project(case.y, case.x, case.weight, case.elu)
    close(case.y, case.wanted, depth**0.5)
    gx = case.backward()
    close(gx, case.wanted_gx, width**0.5)
    close(case.g_weight - 1, case.wanted_g_weight, rows**0.5)
    if case.elu:
        close(case.dots, case.wanted_dots, (depth * width) ** 0.5)
        close(case.sums - 1, case.wanted_gx.sum(0), (rows * width) ** 0.5)
    for wide in case.wide:
        assert wide[:, -3:].isnan().all(), "nothing beside the columns is touched"
    if case.elu:
        found = gx.clone(), case.g_weight.clone(), case.dots.clone()
        case.g_weight.fill_(1)
        for mine, expected in zip((case.backward(gx=case.x), case.g_weight, case.dots), found, strict=True):
            assert torch.equal(mine, expected), "over the input, to the same bits"


@pytest.mark.parametrize("rows, depth, width", SIZES)
def test_rows_of_bfloat16_are_those_numbers(kernels, rows, depth, width):
    """Of x, of the gradient, or of both; and the sums of the gradient's columns."""
    case = Case(rows, depth, width, None)
    x, gradient = case.wide[0].bfloat16()[:, :-3], case.wide[2].bfloat16()[:, :-3]
    project(case.y, x, case.weight)
    close(case.y, x.double() @ case.weight.double(), depth**0.5)
    for factors in ((x, gradient), (x, gradient.float()), (x.float(), gradient)):
        case.g_weight.fill_(1)
        y_sums = torch.ones(width)
        project_backward(case.gx, case.g_weight, *factors, case.weight, y_sums=y_sums)
        close(case.gx, gradient.double() @ case.weight.double().t(), width**0.5)
        close(case.g_weight - 1, x.double().t() @ gradient.double(), rows**0.5)
        close(y_sums - 1, gradient.double().sum(0), rows**0.5)


@pytest.mark.parametrize(
    "rows, depth, width, p, dtype",
    [
        (9000, 24, 40, 0.3, torch.float32),
        (4200, 130, 70, None, torch.float32),
        (4200, 130, 70, None, torch.bfloat16),
        (14500, 640, 1040, None, torch.float32),
    ],
)
def test_no_bit_depends_on_the_threads(kernels, set_threads, rows, depth, width, p, dtype):
    """With more threads than shares of the rows, the weights are cut. In the largest sums, not all shares' sums are
    held at a time.
    """
    if not one_pass(torch.float32):
        pytest.skip("torch's products promise less")
    case, found = Case(rows, depth, width, p, heads=1 if p is None else 4), []
    x, gradient = case.wide[0].to(dtype)[:, :-3], case.wide[2].to(dtype)[:, :-3]
    for threads in (1, 2, 3, 7, 64):
        set_threads(threads)
        y, gx, dots = torch.empty(rows, width), torch.ones(rows, depth), torch.empty_like(case.dots)
        g_weight, sums = torch.ones(depth, width), torch.ones(width if p is None else depth)
        project(y, x, case.weight, case.elu)
        more = {"y_sums": sums, "add": True} if p is None else {"dots": dots, "bias": case.bias, "sums": sums}
        alone = {"gx": None, "add": False} if rows > 9000 else {"gx": gx}
        given = {"g_weight": g_weight, "x": x, "gradient": gradient, "weight": case.weight, "elu": case.elu}
        project_backward(**given | more | alone)
        found.append((y, gx, g_weight, sums, *([] if p is None else [dots])))
    if p is None:
        close(found[0][2] - 1, x.double().t() @ gradient.double(), rows**0.5)
    for others in found[1:]:
        assert all(torch.equal(mine, first) for mine, first in zip(others, found[0], strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shares", [False, True])
def test_entries_dropped_on_the_way_in(kernels, dtype, shares):
    """The numbers of dropout into a matrix, and of a product of that."""
    if not one_pass(torch.float32):
        pytest.skip("only products of our own drop entries")
    draw = torch.Generator().manual_seed(1)
    x, weight = torch.randn(197, 130, generator=draw).to(dtype), torch.randn(130, 33, generator=draw)
    bias, gradient = torch.randn(33, generator=draw), torch.randn(197, 33, generator=draw)
    ids, part = torch.randperm(197, generator=draw), torch.rand(197, generator=draw) if shares else None
    mask, dropped = Mask(ids, KEY, 0.4, part), torch.empty(197, 130)
    dropout(dropped, x, ids, KEY, 0.4, None, part)
    assert 0.3 < float((dropped == 0).float().mean()) < 0.5 or shares
    found, wanted = torch.ones(197, 33), torch.ones(197, 33)
    project(found, x, weight, mask, bias=bias, add=True)
    multiply(wanted, dropped, weight, bias, add=True)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-4)
    g_weight = torch.zeros(130, 33)
    project_backward(None, g_weight, x, gradient, weight, mask)
    torch.testing.assert_close(g_weight, dropped.T @ gradient, rtol=1e-5, atol=1e-4)
    beside, of_beside = x[:, :50], torch.randn(50, 33, generator=draw)
    for other in (None, Mask(ids, KEY + 1, 0.4, None)):  # one pass has the bits of two, and rounds once
        project(wanted, x, weight, mask, bias=bias)
        project(wanted, beside, of_beside, other, add=True)
        for out in (torch.ones(197, 33), torch.ones(197, 33, dtype=torch.bfloat16)):
            project_beside(out, [(x, weight, mask), (beside, of_beside, other)], bias)
            assert torch.equal(out, wanted.to(out.dtype))
