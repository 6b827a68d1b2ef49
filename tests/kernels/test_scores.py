"""Attention by whole rows (gatv2, transformer) against a softmax over an edge list in float64, differentiated by torch.

Its dropout is drawn edge by edge from numbers that are made here, as the general rule makes them.
"""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from hpcgnn import kernels as front
from hpcgnn.kernels import library

KEY, SLOPE = 0x0123_4567_89AB_CDEF, 0.2
KINDS = ["sum", "product"]
SHAPES = [(1, 40), (4, 64), (8, 8), (3, 5), (2, 1), (5, 7), (2, 19), (9, 16)]  # (H, D)
COMPILED = pytest.mark.skipif(library.load().reason is not None, reason="only the compiled library has these kernels")
pytestmark = COMPILED


@dataclass
class Case:
    """Edges by destination, then source; rows of both; the gradient of the result."""

    heads: int
    dst: torch.Tensor
    src: torch.Tensor
    x: torch.Tensor
    source: torch.Tensor
    attention: torch.Tensor | None
    gy: torch.Tensor
    ids: tuple[torch.Tensor, torch.Tensor]
    rate: float = 0.0

    def scores(self, dtype, flat):
        dropout = (self.rate, KEY, *self.ids) if self.rate else None
        return front.RowScores(self.heads, None if flat is None else flat.to(dtype), SLOPE, dropout)


def make_case(kind, heads, width, edges=300, num_dst=23, num_src=31, seed=0, rate=0.0, scale=1.0):
    random = np.random.default_rng(seed)
    dst, src = random.integers(0, num_dst - 2, edges), random.integers(0, num_src - 2, edges)
    dst[dst == 3] = 4  # destinations without edges, in the middle and at the end
    dst, src = np.append(dst, dst[: edges // 5]), np.append(src, src[: edges // 5])  # some edges twice
    order = np.lexsort((src, dst))
    draw = torch.Generator().manual_seed(seed)
    f = heads * width

    def normal(*shape):
        return scale * torch.randn(*shape, generator=draw, dtype=torch.float64).float().double()

    ids = torch.from_numpy(random.choice(2**45, num_dst + num_src, replace=False))
    of_sum = kind == "sum"
    source, attention = normal(num_src, f if of_sum else 2 * f), normal(f) if of_sum else None
    ends = [torch.from_numpy(each[order]) for each in (dst, src)]
    return Case(
        heads, *ends, normal(num_dst, f), source, attention, normal(num_dst, f), ids.split([num_dst, num_src]), rate
    )


def masks(case):
    if not case.rate:
        return torch.ones(len(case.dst), case.heads, dtype=torch.float64)
    pairs = list(zip(case.dst.tolist(), case.src.tolist(), strict=True))
    copies = [k - pairs.index(pair) for k, pair in enumerate(pairs)]  # equal edges are neighbours
    spread, again = 0x9E3779B97F4A7C15 - 2**64, 0xBF58476D1CE4E5B9 - 2**64
    ids = case.ids[0][case.dst] * spread + case.ids[1][case.src] + torch.tensor(copies) * again
    ones = torch.ones(len(ids), case.heads, dtype=torch.float64)
    front.dropout(ones, ones.clone(), ids, KEY, case.rate)
    return ones


def expected(case):
    """y, and the gradients of x, source and attention."""
    leaves = [t.clone().requires_grad_() for t in (case.x, case.source, case.attention) if t is not None]
    x, source, *vectors = leaves
    f, heads, n = x.shape[1], case.heads, len(x)
    if vectors:
        score = torch.nn.functional.leaky_relu(x[case.dst] + source[case.src], SLOPE) * vectors[0]
        value = source[case.src]
    else:
        score, value = x[case.dst] * source[case.src, :f], source[case.src, f:]
    logit = score.unflatten(1, (heads, -1)).sum(-1)
    top = torch.full((n, heads), -torch.inf, dtype=torch.float64).scatter_reduce(
        0, case.dst[:, None].expand_as(logit), logit.detach(), "amax"
    )
    weight = (logit - top[case.dst]).exp()
    alpha = weight / torch.zeros_like(top).index_add(0, case.dst, weight)[case.dst] * masks(case)
    y = torch.zeros_like(x).index_add(0, case.dst, (value.unflatten(1, (heads, -1)) * alpha[..., None]).flatten(1))
    y.backward(case.gy)
    return [y.detach(), *(leaf.grad for leaf in leaves)]


def block(case, chosen, hypersparse):
    """(indptr, indices, rows) of some edges."""
    dst, src = case.dst[chosen], case.src[chosen].int()
    counts = torch.bincount(dst, minlength=len(case.x))
    rows = counts.nonzero().squeeze(1).int() if hypersparse else None
    counts = counts[counts > 0] if hypersparse else counts
    return torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)]), src.contiguous(), rows


def found(case, dtype, pieces=1, moved=None):
    """The same by the kernels, over some blocks of columns. moved: rows of the sources' gradient, by column."""
    x, source, gy = (t.to(dtype) for t in (case.x, case.source, case.gy))
    flat = None if case.attention is None else case.attention.to(dtype)
    scores, n = case.scores(dtype, flat), len(x)
    blocks = [block(case, case.src % pieces == k, pieces > 1) for k in range(pieces)]
    sums = torch.zeros_like(x), x.new_full((n, case.heads), -torch.inf), x.new_zeros(n, case.heads)
    for indptr, indices, rows in blocks:
        front.score_forward(scores, sums, x, source, indptr, indices, rows)
    y, top, total = sums
    share = torch.empty_like(total)
    front.attend_finish(y, top, total, top, None, share)
    g_x, g_source = torch.zeros_like(x), torch.zeros_like(source)
    g_attention = None if flat is None else torch.zeros_like(flat)
    for indptr, indices, rows in blocks:
        returns = None if moved is None else moved[indices.long()].contiguous()
        front.score_backward(
            scores, (g_x, g_source, g_attention), (x, gy, y, top, share), source, indptr, indices, rows, returns
        )
    return [y, *(t for t in (g_x, g_source, g_attention) if t is not None)]


def check(case, dtype, tolerance, **how):
    for made, right in zip(found(case, dtype, **how), expected(case), strict=True):
        size = right.abs().max().clamp(min=1)
        torch.testing.assert_close(made.double() / size, right / size, rtol=0, atol=tolerance)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-12), (torch.float32, 3e-6)], ids=["f64", "f32"])
def test_every_width(path, threads, kind, dtype, tolerance):
    for heads, width in SHAPES:
        check(make_case(kind, heads, width), dtype, tolerance)
        check(make_case(kind, heads, width, rate=0.4, seed=1), dtype, tolerance, pieces=3)


@pytest.mark.parametrize("kind", KINDS)
def test_a_hub_is_split_and_merged(path, threads, kind):
    case = make_case(kind, 2, 3, edges=40)
    case.dst = torch.cat([torch.full((20_000,), 5), torch.full((30,), 6)])
    case.src = torch.cat([torch.arange(20_000) * 29 // 20_000, torch.arange(30) % 29]).sort()[0]
    check(case, torch.float64, 1e-11)


@pytest.mark.parametrize("kind", KINDS)
def test_bits_do_not_depend_on_threads(set_threads, kind):
    case, seen = make_case(kind, 4, 12, edges=60_000, num_dst=900, num_src=700), []
    case.rate = 0.3
    for threads in (1, 2, 3, 7, 64):
        set_threads(threads)
        seen.append(found(case, torch.float32, pieces=2))
    for other in seen[1:]:
        assert all(torch.equal(one, two) for one, two in zip(seen[0], other, strict=True))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_one_edge_that_outweighs_the_others_has_no_gradient_of_its_score(path, kind, rate):
    """However large the features are: what is left of a difference of large numbers would be noise."""
    case = make_case(kind, 2, 19, rate=rate, scale=2e3)
    case.gy /= 2e3
    case.dst, case.src = torch.unique(torch.stack([case.dst, case.src]), dim=1)  # three equal edges would share y
    of_x = found(case, torch.float32)[1]
    assert of_x.abs().max() == 0 and expected(case)[1].abs().max() == 0


def test_returns_go_where_they_are_told(threads):
    case = make_case("sum", 2, 5)
    count = len(case.source)
    usual, moved = found(case, torch.float32), torch.randperm(count, generator=torch.Generator().manual_seed(1)).int()
    told = found(case, torch.float32, moved=moved)
    assert torch.equal(told[2][moved.long()], usual[2]) and torch.equal(told[1], usual[1])


def test_wrong_arguments_are_refused():
    case = make_case("sum", 2, 3)
    scores, x = case.scores(torch.float64, case.attention), case.x
    sums = torch.zeros_like(x), x.new_zeros(len(x), 2), x.new_zeros(len(x), 2)
    edges = block(case, slice(None), False)[:2]
    for changed, source, message in (
        (replace(scores, attention=case.attention[:4]), case.source, "attention: expected shape"),
        (replace(scores, attention=None), case.source, "source: expected shape"),
        (scores, case.source.float(), "source: expected torch.float64"),
    ):
        with pytest.raises(ValueError, match=message):
            front.score_forward(changed, sums, x, source, *edges)
