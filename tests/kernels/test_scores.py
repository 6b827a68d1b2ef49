"""Attention by whole rows (gatv2, transformer, rgat) against a softmax over an edge list in float64, which torch
differentiates.

Its dropout is drawn edge by edge from numbers that are made here, as the general rule makes them.
"""

from dataclasses import dataclass, replace

import kernel_oracle
import numpy as np
import pytest
import torch

from hpcgnn import kernels as front
from hpcgnn.kernels import library

KEY, SLOPE = 0x0123_4567_89AB_CDEF, 0.2
KINDS = ["sum", "product", "sum of edges", "product of edges", "mixed"]
DEPTH, TYPES, BASES = 6, 5, 3  # features of an edge; relations and their bases
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
    weight: torch.Tensor | None = None
    edge: torch.Tensor | None = None  # a row for each of these, wherever the edges are
    mixed: bool = False

    def scores(self, dtype, flat):
        dropout = (self.rate, KEY, *self.ids) if self.rate else None
        edge = self.edge if self.mixed or self.edge is None else self.edge.to(dtype)
        weight = None if self.weight is None else self.weight.to(dtype)
        flat = None if flat is None else flat.to(dtype)
        return front.RowScores(self.heads, flat, SLOPE, dropout, self.mixed, weight=weight, edge=edge)

    @property
    def places(self):
        """Which row of `edge` each edge has."""
        return (torch.arange(len(self.dst)) * 7) % 101


def make_case(kind, heads, width, edges=300, num_dst=23, num_src=31, seed=0, rate=0.0, scale=1.0):
    random = np.random.default_rng(seed)
    ends = [torch.from_numpy(each) for each in kernel_oracle.edges(num_dst, num_src, edges, random)]
    draw = torch.Generator().manual_seed(seed)
    f = heads * width

    def normal(*shape):
        return scale * torch.randn(*shape, generator=draw, dtype=torch.float64).float().double()

    ids = torch.from_numpy(random.choice(2**45, num_dst + num_src, replace=False))
    of_sum, mixed = kind.startswith("sum"), kind == "mixed"
    columns = BASES * (f + heads) if mixed else f if of_sum else 2 * f
    source, attention = normal(num_src, columns), normal(f) if of_sum else None
    x = normal(num_dst, BASES * heads if mixed else f)
    case = Case(heads, *ends, x, source, attention, normal(num_dst, f), ids.split([num_dst, num_src]), rate)
    if mixed:
        types = torch.randint(TYPES, (101,), generator=draw, dtype=torch.int32)
        return replace(case, weight=normal(TYPES, BASES), edge=types, mixed=True)
    # Smaller: logits, and what rounding makes of their exponentials, are then about as large as without.
    return replace(case, weight=normal(DEPTH, f) / 4, edge=normal(101, DEPTH)) if kind.endswith("edges") else case


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
    """y, and the gradients of x, source, attention and weight."""
    x, source, attention, weights = leaves = [
        None if t is None else t.clone().requires_grad_() for t in (case.x, case.source, case.attention, case.weight)
    ]
    f, heads, leaky = case.gy.shape[1], case.heads, torch.nn.functional.leaky_relu
    of_edge = 0 if weights is None else case.edge[case.places]
    if case.mixed:
        share, values, halves = weights[of_edge.long()][:, :, None], source[:, : BASES * f], source[:, BASES * f :]
        value = (share * values[case.src].unflatten(1, (BASES, f))).sum(1)
        score = leaky((share * (halves[case.src] + x[case.dst]).unflatten(1, (BASES, heads))).sum(1), SLOPE)
    elif attention is not None:
        more = 0 if weights is None else of_edge @ weights
        score = leaky(x[case.dst] + source[case.src] + more, SLOPE) * attention
        value = source[case.src]
    else:
        more = 0 if weights is None else of_edge @ weights
        score, value = x[case.dst] * (source[case.src, :f] + more), source[case.src, f:] + more
    logit = score.unflatten(1, (heads, -1)).sum(-1)
    y, _ = kernel_oracle.attend(logit, value.unflatten(1, (heads, -1)), case.dst, len(x), masks(case))
    y.backward(case.gy)
    return [y.detach(), *(leaf.grad for leaf in leaves if leaf is not None)]


def block(case, chosen, hypersparse):
    """{indptr, indices, rows} of some edges, and the places of their data, of either type."""
    indptr, rows = kernel_oracle.stored(case.dst[chosen].numpy(), len(case.x), hypersparse)
    places = None if case.edge is None else case.places[chosen].to(torch.int32 if hypersparse else torch.int64)
    return {"indptr": indptr, "indices": case.src[chosen].int().contiguous(), "rows": rows}, places


def found(case, dtype, pieces=1, moved=None):
    """The same by the kernels, over some blocks of columns. moved: rows of the sources' gradient, by column."""
    x, source, gy = (t.to(dtype) for t in (case.x, case.source, case.gy))
    flat = None if case.attention is None else case.attention.to(dtype)
    scores, n = case.scores(dtype, flat), len(x)
    blocks = [block(case, case.src % pieces == k, pieces > 1) for k in range(pieces)]
    y, top, total = torch.zeros_like(gy), x.new_full((n, case.heads), -torch.inf), x.new_zeros(n, case.heads)
    given = [scores.at(places).given(source) | of_block for of_block, places in blocks]
    for each in given:
        front.score_forward(x=x, y=y, running_max=top, denominator=total, **each)
    share = torch.empty_like(total)
    front.attend_finish(y, top, total, top, None, share)
    gradients = {"g_x": torch.zeros_like(x), "g_source": torch.zeros_like(source)}
    for name, of in (("g_attention", flat), ("g_weight", scores.weight)):
        gradients[name] = None if of is None else torch.zeros_like(of)
    saved = {"x": x, "gy": gy, "y": y, "top": top, "share": share} | gradients
    for each in given:
        returns = None if moved is None else moved[each["indices"].long()].contiguous()
        front.score_backward(**saved, **each, returns=returns)
    return [y, *(t for t in gradients.values() if t is not None)]


def check(case, dtype, tolerance, **how):
    kernel_oracle.close(found(case, dtype, **how), expected(case), tolerance)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-12), (torch.float32, 3e-6)], ids=["f64", "f32"])
def test_every_width(path, threads, kind, dtype, tolerance):
    tolerance *= 2 if kind.endswith("edges") else 1  # the key is rounded as well
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
    case.edge = case.edge / 2e3 if case.edge is not None and not case.mixed else case.edge
    case.dst, case.src = torch.unique(torch.stack([case.dst, case.src]), dim=1)  # three equal edges would share y
    of_x = found(case, torch.float32)[1]
    assert of_x.abs().max() == 0 and expected(case)[1].abs().max() == 0


@pytest.mark.parametrize("kind", KINDS)
def test_returns_go_where_they_are_told(threads, kind):
    case = make_case(kind, 2, 5)
    count = len(case.source)
    usual, moved = found(case, torch.float32), torch.randperm(count, generator=torch.Generator().manual_seed(1)).int()
    told = found(case, torch.float32, moved=moved)
    assert torch.equal(told[2][moved.long()], usual[2]) and torch.equal(told[1], usual[1])


def test_what_a_table_does_not_know_is_refused():
    case = make_case("sum", 2, 3)
    scores = case.scores(torch.float64, case.attention)
    of_edges = make_case("sum of edges", 2, 3).scores(torch.float64, case.attention)
    for changed, message in (
        (of_edges, "edge, places: expected"),
        (replace(scores, heads=4), "source: expected a multiple of 4 heads"),
        (replace(scores, attention=None), "source: expected a multiple of 2 heads"),
    ):
        with pytest.raises(ValueError, match=message):
            changed.given(case.source)
