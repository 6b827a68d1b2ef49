"""Attention by scores of whole rows (gatv2, transformer, rgat), compared with its formula over an edge list in float64,
which torch differentiates.

Dropout of attention is drawn edge by edge from numbers that are made here, as the general rule makes them.
"""

from dataclasses import dataclass, replace

import kernel_oracle
import numpy as np
import pytest
import torch

from hpcgnn import kernels as front
from hpcgnn.kernels import library

KEY, SLOPE = 0x0123_4567_89AB_CDEF, 0.2
SCORES = ["sum", "product", "sum of edges", "product of edges", "mixed"]
DEPTH, TYPES, BASES = 6, 5, 3  # features of an edge; relations and their bases
SHAPES = [(1, 40), (4, 64), (8, 8), (3, 5), (2, 1), (5, 7), (2, 19), (9, 16)]  # (H, D)
pytestmark = pytest.mark.skipif(library.load().reason is not None, reason="only the compiled library has these kernels")


def scores_of(kind, heads, width, edges=300, num_dst=23, num_src=31, seed=0, rate=0.0, scale=1.0):
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
    case = Scores(heads, *ends, x, source, attention, normal(num_dst, f), ids.split([num_dst, num_src]), rate)
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


def blocks(case, pieces):
    """(indptr, indices and rows, places of the edges' data, of either type) of the edges from some of the columns."""
    for k in range(pieces):
        chosen = case.src % pieces == k
        indptr, rows = kernel_oracle.stored(case.dst[chosen].numpy(), len(case.gy), pieces > 1)
        block = {"indptr": indptr, "indices": case.src[chosen].int().contiguous(), "rows": rows}
        yield block, case.places[chosen].to(torch.int32 if k else torch.int64)


def returns_of(block, moved):
    return None if moved is None else moved[block["indices"].long()].contiguous()


@dataclass
class Scores:
    """Attention: edges by destination, then source; rows of both; the gradient of the result."""

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

    def expected(self):
        """y, and the gradients of source, x, attention and weight."""
        source, x, attention, weights = leaves = [
            None if t is None else t.clone().requires_grad_()
            for t in (self.source, self.x, self.attention, self.weight)
        ]
        f, heads, leaky = self.gy.shape[1], self.heads, torch.nn.functional.leaky_relu
        of_edge = 0 if weights is None else self.edge[self.places]
        if self.mixed:
            share, values, halves = weights[of_edge.long()][:, :, None], source[:, : BASES * f], source[:, BASES * f :]
            value = (share * values[self.src].unflatten(1, (BASES, f))).sum(1)
            score = leaky((share * (halves[self.src] + x[self.dst]).unflatten(1, (BASES, heads))).sum(1), SLOPE)
        elif attention is not None:
            more = 0 if weights is None else of_edge @ weights
            score = leaky(x[self.dst] + source[self.src] + more, SLOPE) * attention
            value = source[self.src]
        else:
            more = 0 if weights is None else of_edge @ weights
            score, value = x[self.dst] * (source[self.src, :f] + more), source[self.src, f:] + more
        logit = score.unflatten(1, (heads, -1)).sum(-1)
        y, _ = kernel_oracle.attend(logit, value.unflatten(1, (heads, -1)), self.dst, len(x), masks(self))
        y.backward(self.gy)
        return [y.detach(), *(leaf.grad for leaf in leaves if leaf is not None)]

    def found(self, dtype, pieces=1, moved=None):
        """The same by the kernels, over some blocks of columns. moved: rows of the sources' gradient, by column."""
        x, source, gy = (t.to(dtype) for t in (self.x, self.source, self.gy))
        flat = None if self.attention is None else self.attention.to(dtype)
        scores, n = self.scores(dtype, flat), len(x)
        y, top, total = torch.zeros_like(gy), x.new_full((n, self.heads), -torch.inf), x.new_zeros(n, self.heads)
        given = [replace(scores, places=places).given(source) | of_block for of_block, places in blocks(self, pieces)]
        for each in given:
            front.score_forward(x=x, y=y, running_max=top, denominator=total, **each)
        share = torch.empty_like(total)
        front.attend_finish(y, top, total, top, None, share)
        complete = pieces == 1
        gradients = {"g_source": torch.zeros_like(source), "g_x": torch.full_like(x, np.nan if complete else 0)}
        for name, of in (("g_attention", flat), ("g_weight", scores.weight)):
            gradients[name] = None if of is None else torch.zeros_like(of)
        saved = {"x": x, "gy": gy, "y": y, "top": top, "share": share} | gradients
        for each in given:
            front.score_backward(**saved, **each, returns=returns_of(each, moved), complete=complete)
        return [y, *(t for t in gradients.values() if t is not None)]


@pytest.mark.parametrize("rule", SCORES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["f64", "f32"])
def test_every_width(path, threads, rule, dtype):
    tolerance = 1e-12 if dtype == torch.float64 else 3e-6
    tolerance *= 2 if rule.endswith("edges") else 1  # the key is rounded as well
    for heads, width in SHAPES:
        for case, pieces in (scores_of(rule, heads, width), 1), (scores_of(rule, heads, width, rate=0.4, seed=1), 3):
            kernel_oracle.close(case.found(dtype, pieces), case.expected(), tolerance)


def with_hub(case):
    """Nearly all edges at a row, some at the next, none at others."""
    large, few = 20_000, 30
    case.dst = torch.cat([torch.full((large,), 5), torch.full((few,), 6)])
    case.src = torch.cat([torch.arange(large) * 29 // large, torch.arange(few) % 29]).sort()[0]
    return case


@pytest.mark.parametrize("rule", SCORES)
def test_a_hub_is_split_and_merged(path, threads, rule):
    case = with_hub(scores_of(rule, 2, 3, edges=40))
    kernel_oracle.close(case.found(torch.float64), case.expected(), 1e-11)


@pytest.mark.parametrize("complete", [False, True])
def test_relational_sums(path, threads, complete):
    """As in torch, with the gradient of the coefficients; those of a complete block begin anew."""
    case = with_hub(scores_of("mixed", 1, 5, edges=40))
    (block, places), source, factors = next(blocks(case, 1)), case.source[:, :5].contiguous(), case.gy.flatten()[:101]
    x, made = torch.cat([case.gy] * BASES, 1), []
    for compiled in (True, False):
        sums, g_weight = torch.full_like(x, np.nan if complete else 1), torch.zeros_like(case.weight)
        given = {"types": case.edge, "factors": factors.contiguous(), "x": x, "g_weight": g_weight, **block}
        front.relate(sums, source, case.weight, places, complete=complete, compiled=compiled, **given)
        made.append([sums, g_weight])
    kernel_oracle.close(*made, 1e-11)


@pytest.mark.parametrize("rule", SCORES)
def test_bits_do_not_depend_on_threads(set_threads, rule):
    case = scores_of(rule, 4, 12, edges=60_000, num_dst=900, num_src=700, rate=0.3)
    seen = []
    for threads in (1, 2, 3, 7, 64):
        set_threads(threads)
        seen.append(case.found(torch.float32, pieces=2))
    for other in seen[1:]:
        assert all(torch.equal(one, two) for one, two in zip(seen[0], other, strict=True))


@pytest.mark.parametrize("rule", SCORES)
def test_returns_go_where_they_are_told(threads, rule):
    case = scores_of(rule, 2, 5)
    moved = torch.randperm(31, generator=torch.Generator().manual_seed(1)).int()
    usual, told = (case.found(torch.float32, moved=each) for each in (None, moved))
    assert torch.equal(told[1][moved.long()], usual[1]) and torch.equal(told[2], usual[2])


@pytest.mark.parametrize("kind", SCORES)
@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_one_edge_that_outweighs_the_others_has_no_gradient_of_its_score(path, kind, rate):
    """However large the features are: the rest of a difference of large numbers would be noise."""
    case = scores_of(kind, 2, 19, rate=rate, scale=2e3)
    case.gy /= 2e3
    case.edge = case.edge / 2e3 if case.edge is not None and not case.mixed else case.edge
    case.dst, case.src = torch.unique(torch.stack([case.dst, case.src]), dim=1)  # three equal edges would share y
    of_x = case.found(torch.float32)[2]
    assert of_x.abs().max() == 0 and case.expected()[2].abs().max() == 0


def test_what_a_table_does_not_know_is_refused():
    case = scores_of("sum", 2, 3)
    scores = case.scores(torch.float64, case.attention)
    of_edges = scores_of("sum of edges", 2, 3).scores(torch.float64, case.attention)
    for changed, message in (
        (of_edges, "edge, places: expected"),
        (replace(scores, heads=4), "source: expected a multiple of 4 heads"),
        (replace(scores, attention=None), "source: expected a multiple of 2 heads"),
    ):
        with pytest.raises(ValueError, match=message):
            changed.given(case.source)
