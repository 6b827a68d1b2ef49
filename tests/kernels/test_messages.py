"""Messages (gine, pna) against their formula over an edge list in float64, differentiated by torch."""

import kernel_oracle
import numpy as np
import pytest
import torch

from hpcgnn import kernels as front
from hpcgnn.kernels import library

pytestmark = pytest.mark.skipif(library.load().reason is not None, reason="only the compiled library has these kernels")
EPSILON = 1e-5


class Case:
    """Edges by destination, then source, some of them twice; rows of both, and features of the edges.

    coarse: few different numbers, so that many messages are equal.
    """

    def __init__(self, width, depth, edges=300, n=23, columns=31, coarse=False):
        random, draw = np.random.default_rng(width), torch.Generator().manual_seed(depth)
        self.dst, self.src = (torch.from_numpy(each) for each in kernel_oracle.edges(n, columns, edges, random))

        def normal(*shape):
            made = torch.randn(*shape, generator=draw, dtype=torch.float64).float().double()
            return made.round() if coarse else made

        self.x, self.edge = normal(columns, width), normal(len(self.dst), depth)
        self.weight, self.bias = (normal(depth, width), normal(width)) if depth else (None, None)
        self.gy = {False: normal(n, width), True: normal(n, 4 * width)}
        self.places = torch.randperm(len(self.dst), generator=draw)

    def leaves(self, dtype):
        given = (self.x, self.weight, self.bias)
        return [None if t is None else t.to(dtype).clone().requires_grad_() for t in given]


def finished(y, number, width):
    """The moments that layers see, of what the kernels leave."""
    some = (number > 0)[:, None].to(y.dtype)
    squares = y[:, 3 * width :] / number.clamp(min=1)[:, None]
    extremes = torch.where(some > 0, y[:, width : 3 * width], 0)
    return torch.cat([y[:, :width], extremes, (squares + EPSILON).sqrt() * some], 1)


def expected(case, moments, relu):
    """y, and the gradients of x, weight and bias."""
    x, weight, bias = leaves = case.leaves(torch.float64)
    message, n = x[case.src], len(case.gy[moments])
    if weight is not None:
        message = message + case.edge[case.places] @ weight + bias
    message = message.relu() if relu else message
    index = case.dst[:, None].expand_as(message)
    total = torch.zeros(n, message.shape[1], dtype=torch.float64).index_add(0, case.dst, message)
    if moments:
        number = torch.bincount(case.dst, minlength=n)[:, None]
        some, count = number > 0, number.clamp(min=1)
        mean = total / count
        square = torch.zeros_like(total).index_add(0, case.dst, (message - mean[case.dst]) ** 2) / count
        starts = {"amax": -torch.inf, "amin": torch.inf}  # zeros would share the gradient of a largest that is zero
        ends = [
            torch.where(some, torch.full_like(total, start).scatter_reduce(0, index, message, name), 0)
            for name, start in starts.items()
        ]
        total = torch.cat([mean, *ends, (square + EPSILON).sqrt() * some], 1)
    total.backward(case.gy[moments])
    return [total.detach(), *(t.grad for t in leaves if t is not None)]


def found(case, moments, relu, dtype, pieces=1, moved=None):
    """The same by the kernels, over some blocks of columns."""
    x, weight, bias = (None if t is None else t.detach() for t in case.leaves(dtype))
    n, width, gy = len(case.gy[moments]), x.shape[1], case.gy[moments].to(dtype)
    how = front.RowMessages(moments, relu, bias, weight=weight, edge=case.edge.to(dtype))
    y, number = x.new_zeros(n, how.columns * width), torch.zeros(n, dtype=torch.int64)
    counts = x.new_zeros(n, 2 * width)
    if moments:
        y[:, width : 2 * width], y[:, 2 * width : 3 * width] = -torch.inf, torch.inf
    blocks = []
    for k in range(pieces):
        chosen = case.src % pieces == k
        indptr, rows = kernel_oracle.stored(case.dst[chosen].numpy(), n, pieces > 1)
        places = case.places[chosen].to(torch.int32 if k else torch.int64)
        of_block = {"indptr": indptr, "indices": case.src[chosen].int().contiguous(), "rows": rows}
        blocks.append(how.at(places).given(x) | of_block)
    sums = {"counts": counts, "numbers": number} if moments else {}
    for block in blocks:
        front.message_forward(y=y, **sums, **block)
    gradient = gy
    if moments:
        y = finished(y, number, width)
        count = number.clamp(min=1)[:, None]
        mean, top, low, spread = gy.chunk(4, 1)
        tops, lows = counts.clamp(min=1).chunk(2, 1)
        apart = torch.where(number[:, None] > 0, spread / (y[:, 3 * width :] * count), 0)
        gradient = torch.cat([mean / count, top / tops, low / lows, apart], 1)
    g_x, g_map = torch.zeros_like(x), x.new_zeros((0 if weight is None else len(weight)) + 1, width)
    for block in blocks:
        returns = None if moved is None else moved[block["indices"].long()].contiguous()
        front.message_backward(y=y, gradient=gradient.contiguous(), g_x=g_x, g_map=g_map, returns=returns, **block)
    return [y, g_x, *((g_map[:-1], g_map[-1]) if weight is not None else ())]


def check(case, moments, relu, dtype, tolerance, **how):
    kernel_oracle.close(found(case, moments, relu, dtype, **how), expected(case, moments, relu), tolerance)


@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-12), (torch.float32, 1e-5)], ids=["f64", "f32"])
@pytest.mark.parametrize("moments", [False, True], ids=["sum", "moments"])
def test_every_width(path, threads, moments, dtype, tolerance):
    for width, depth in ((1, 0), (3, 1), (8, 5), (40, 4), (129, 9)):
        check(Case(width, depth), moments, not moments, dtype, tolerance)
        check(Case(width, depth, coarse=True), moments, depth == 5, dtype, tolerance, pieces=3)


@pytest.mark.parametrize("moments", [False, True], ids=["sum", "moments"])
def test_a_hub_is_split_and_merged(path, threads, moments):
    case = Case(3, 2, edges=25_000, coarse=True)
    case.dst = torch.cat([torch.full((29_000,), 5), torch.full((1_000,), 6)])
    case.src = torch.cat([torch.arange(29_000) * 29 // 29_000, torch.arange(1_000) % 29])
    case.x += 100  # far from 0 against the spread
    check(case, moments, False, torch.float64, 1e-10, pieces=2)


@pytest.mark.parametrize("moments", [False, True], ids=["sum", "moments"])
def test_bits_do_not_depend_on_threads(set_threads, moments):
    case, seen = Case(12, 6, edges=60_000, n=900, columns=700), []
    for threads in (1, 2, 3, 64):
        set_threads(threads)
        seen.append(found(case, moments, True, torch.float32, pieces=2))
    for other in seen[1:]:
        assert all(torch.equal(one, two) for one, two in zip(seen[0], other, strict=True))


def test_returns_go_where_they_are_told(threads):
    case = Case(5, 3)
    moved = torch.randperm(len(case.x), generator=torch.Generator().manual_seed(1)).int()
    usual, told = (found(case, True, True, torch.float32, moved=each) for each in (None, moved))
    assert torch.equal(told[1][moved.long()], usual[1]) and torch.equal(told[2], usual[2])
