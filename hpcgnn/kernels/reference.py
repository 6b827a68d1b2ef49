"""The kernels in plain torch: the reference of the compiled ones, and their replacement if none could be compiled.

The code is written for clarity, with one concession to scale. `gather` expands the edges in pieces, so that its extra
memory is bounded and not (edges, width). Arguments arrive checked. Random words and dropout agree with the compiled
kernels bit for bit; sums agree to rounding, because they are formed in another order.
"""

import itertools
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from .batch_norm_reference import column_sums as column_sums
from .batch_norm_reference import norm_columns as norm_columns
from .batch_norm_reference import norm_columns_gradient as norm_columns_gradient
from .batch_norm_reference import norm_gradient_sums as norm_gradient_sums
from .edges_reference import PIECE
from .edges_reference import drop_edges as drop_edges
from .edges_reference import edge_factors as _edge_factors
from .edges_reference import edge_pieces as _edge_pieces
from .interface import EdgeRule
from .narrowing_reference import decode as decode
from .narrowing_reference import encode as encode
from .narrowing_reference import narrow as narrow
from .narrowing_reference import widen as widen
from .random_reference import philox
from .random_reference import random_words as random_words

_MASK = 0xFFFFFFFF


def gather(
    y: Tensor,
    x: Tensor,
    indptr: Tensor,
    indices: Tensor,
    rows: Tensor | None,
    weight: Tensor | None,
    source_scale: Tensor | None,
    row_scale: Tensor | None,
    accumulate: bool,
) -> None:
    num_stored, width = indptr.numel() - 1, x.shape[1]
    acc_dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    begin, end = int(indptr[0]), int(indptr[-1])
    sums = torch.zeros(num_stored, width, dtype=acc_dtype)
    step = max(1, PIECE // max(1, width))
    for first in range(begin, end, step):
        edges = torch.arange(first, min(first + step, end))
        sources = indices[edges]
        message = x[sources].to(acc_dtype)
        if weight is not None or source_scale is not None:
            coefficient = torch.ones(edges.numel(), dtype=acc_dtype) if weight is None else weight[edges]
            if source_scale is not None:
                coefficient = coefficient * source_scale[sources]
            message = message * coefficient[:, None]
        sums.index_add_(0, torch.searchsorted(indptr, edges, right=True) - 1, message)
    target = torch.arange(num_stored) if rows is None else rows.to(torch.int64)
    if row_scale is not None:
        sums *= row_scale[target, None]
    if accumulate:
        sums += y[target].to(acc_dtype)
    y[target] = sums.to(y.dtype)


def _pieces(indptr: Tensor, indices: Tensor, rows: Tensor | None, width: int) -> Iterator[tuple[Tensor, Tensor]]:
    """(target rows, sources) of the edges, int64, in pieces of bounded size."""
    begin, end = int(indptr[0]), int(indptr[-1])
    step = max(1, PIECE // max(1, width))
    for first in range(begin, end, step):
        edges = torch.arange(first, min(first + step, end))
        stored = torch.searchsorted(indptr, edges, right=True) - 1
        yield stored if rows is None else rows[stored].to(torch.int64), indices[edges].to(torch.int64)


def gather_largest(y: Tensor, count: Tensor, x: Tensor, indptr: Tensor, indices: Tensor, rows: Tensor | None) -> None:
    for target, sources in _pieces(indptr, indices, rows, y.shape[1]):
        index, value, before = target[:, None].expand(-1, y.shape[1]), x[sources], y.clone()
        y.scatter_reduce_(0, index, value, "amax")
        count.masked_fill_((y > before) | y.isnan(), 0)
        count.scatter_add_(0, index, (value == y[target]).to(count.dtype))


def gather_matching(y: Tensor, own: Tensor, x: Tensor, indptr: Tensor, indices: Tensor, rows: Tensor | None) -> None:
    width = y.shape[1]
    for target, sources in _pieces(indptr, indices, rows, width):
        g, value = x[sources].split(width, 1)
        y.index_add_(0, target, g * (own[target] == value))


def pack(out: Tensor, x: Tensor, index: Tensor, scale: Tensor | None) -> None:
    taken = x[index]
    if scale is not None:
        taken = taken.to(scale.dtype) * scale[index][:, None]
    out.copy_(taken)


def add_rows(
    out: Tensor, index: Tensor, x: Tensor, place: Tensor | None, weight: Tensor | None, distinct: bool
) -> None:
    step = index.numel() if place is None and weight is None else PIECE // max(1, x.shape[1])
    for first in range(0, index.numel(), max(1, step)):
        some = slice(first, first + max(1, step))
        rows = x[some] if place is None else x[place[some]]
        if weight is not None:
            rows = (rows.to(weight.dtype) * weight[some, None]).to(x.dtype)
        out.index_add_(0, index[some], rows)


def check_block(
    indptr: Tensor, indices: Tensor, rows: Tensor | None, num_rows: int, num_sources: int
) -> tuple[str, int]:
    """The name of the first fault ("" if none) and its position, as the compiled function reports them."""

    def first(bad: Tensor) -> int | None:
        return int(bad.to(torch.int8).argmax()) if bool(bad.any()) else None

    if int(indptr[0]) < 0:
        return "indptr_start", 0
    if (at := first(indptr[1:] < indptr[:-1])) is not None:
        return "indptr_order", at
    if int(indptr[-1]) > indices.numel():
        return "indptr_end", indptr.numel() - 1
    if rows is not None:
        outside = first((rows < 0) | (rows >= num_rows))
        unordered = first(rows[1:] <= rows[:-1])
        if outside is not None and (unordered is None or outside <= unordered + 1):
            return "row_range", outside
        if unordered is not None:
            return "row_order", unordered + 1
    used = indices[int(indptr[0]) : int(indptr[-1])]
    if (at := first((used < 0) | (used >= num_sources))) is not None:
        return "index_range", int(indptr[0]) + at
    return "", 0


def least_cover(indptr: Tensor, indices: Tensor, num_right: int) -> tuple[int, Tensor, Tensor]:
    """By one alternating search for each vertex of the left (Kuhn, 1955): for small graphs."""
    ends, others = indptr.tolist(), indices.tolist()
    right_of = [others[first:last] for first, last in itertools.pairwise(ends)]
    left_of: list[list[int]] = [[] for _ in range(num_right)]
    for u, found in enumerate(right_of):
        for v in found:
            left_of[v].append(u)
    mates: dict[int, int] = {}  # of right vertices

    def reached(
        starts: Iterable[int], edges: list[list[int]], mate: dict[int, int], first: bool = False
    ) -> tuple[dict[int, int], int]:
        """({vertex of the other side: from which it was reached}, -1); first: up to one that is free, and that one."""
        came_from, todo = dict[int, int](), list(starts)
        for u in todo:  # grows on the way
            for v in edges[u]:
                if v not in came_from:
                    came_from[v] = u
                    if v in mate:
                        todo.append(mate[v])
                    elif first:
                        return came_from, v
        return came_from, -1

    partner: dict[int, int] = {}  # of left vertices
    for start in range(len(right_of)):
        came_from, v = reached([start], right_of, mates, first=True)
        while v >= 0:
            u = came_from[v]
            mates[v], partner[u], v = u, v, -1 if u == start else partner[u]
    from_left, _ = reached([u for u in range(len(right_of)) if u not in partner], right_of, mates)
    from_right, _ = reached([v for v in range(num_right) if v not in mates], left_of, partner)
    left, right = torch.zeros(len(right_of), dtype=torch.uint8), torch.zeros(num_right, dtype=torch.uint8)
    for v, u in mates.items():
        if v in from_left:
            right[v] = 1
        else:
            left[u] = 1
        if u in from_right:
            left[u] += 2
        else:
            right[v] += 2
    return len(mates), left, right


def _drop(x: Tensor, words: Tensor, threshold: int, scale: float) -> Tensor:
    acc_dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    return torch.where(words >= threshold, (x.to(acc_dtype) * scale).to(x.dtype), torch.zeros((), dtype=x.dtype))


def dropout(
    out: Tensor,
    x: Tensor,
    ids: Tensor,
    key: int,
    threshold: int,
    scale: float,
    index: Tensor | None,
    part: Tensor | None,
) -> None:
    step = max(1, PIECE // (8 * max(1, x.shape[1])))
    for first in range(0, ids.numel(), step):
        piece = slice(first, first + step)
        rows = (x[piece] if index is None else x[index[piece]]).to(out.dtype)
        left = _drop(rows, random_words(key, ids[piece], x.shape[1]), threshold, scale)
        if part is not None:
            mine = part[piece, None]
            left.mul_(mine).addcmul_(rows, 1 - mine)
        out[piece] = left


def dropout_entries(
    out: Tensor, data: Tensor, indptr: Tensor, ids: Tensor, columns: Tensor, key: int, threshold: int, scale: float
) -> None:
    begin, end, step = int(indptr[0]), int(indptr[-1]), PIECE // 8
    for first in range(begin, end, step):
        entries = torch.arange(first, min(first + step, end))
        entry_ids = ids[torch.searchsorted(indptr, entries, right=True) - 1]
        column = columns[entries].to(torch.int64)
        counters = torch.stack(
            [column >> 2, entry_ids & _MASK, (entry_ids >> 32) & _MASK, torch.zeros_like(column)], dim=-1
        )
        words = philox(counters, key).gather(1, (column & 3)[:, None])[:, 0]
        out[entries] = _drop(data[entries], words, threshold, scale)


def attend_forward(
    y: Tensor,
    running_max: Tensor,
    denominator: Tensor,
    a_dst: Tensor,
    source: Tensor,
    indptr: Tensor,
    indices: Tensor,
    heads: int,
    slope: float,
    rows: Tensor | None,
    edge_term: Tensor | None,
    rule: EdgeRule | None,
    complete: bool,
    bias: Tensor | None,
) -> None:
    width = y.shape[1]
    if complete:
        y.zero_()
        running_max.fill_(-torch.inf)
        denominator.zero_()
    for edges, target, columns, duplicate in _edge_pieces(indptr, indices, rows, width):
        if not edges.numel():
            continue
        logit = a_dst[target] + source[columns, width:]
        if edge_term is not None:
            logit = logit + edge_term[edges]
        logit = torch.where(logit > 0, logit, slope * logit)
        before = running_max.clone()
        running_max.scatter_reduce_(0, target[:, None].expand_as(logit), logit, "amax")
        finite = torch.where(running_max == -torch.inf, 0, running_max)
        factor = torch.where(before == running_max, 1, torch.exp(before - finite))
        weight = torch.exp(logit - finite[target])
        denominator.mul_(factor).index_add_(0, target, weight)
        y.unflatten(1, (heads, -1)).mul_(factor[..., None])
        if rule is not None:
            weight = weight * _edge_factors(rule, True, target, columns, duplicate, heads).to(weight.dtype)
        message = source[columns, :width].unflatten(1, (heads, -1)) * weight[..., None]
        y.index_add_(0, target, message.flatten(1))
    if complete:
        normalise(y, denominator, bias)


def attend_backward(
    gz: Tensor,
    ga_src: Tensor,
    ga_dst: Tensor,
    z_src: Tensor,
    remote: Tensor,
    indptr: Tensor,
    indices: Tensor,
    heads: int,
    slope: float,
    shared: bool,
    rows: Tensor | None,
    edge_term: Tensor | None,
    g_edge_term: Tensor | None,
    rule: EdgeRule | None,
    complete: bool,
    bias: Tensor | None,
    returns: Tensor | None,
) -> None:
    width, g_width = gz.shape[1], remote.shape[1] - 3 * heads
    if complete:
        z_src = z_src.clone()
        gz.zero_()
        ga_src.zero_()
    for edges, own, columns, duplicate in _edge_pieces(indptr, indices, rows, width):
        tail = remote[columns, g_width:]
        a_dst, top, shift = tail[:, :heads], tail[:, heads : 2 * heads], tail[:, 2 * heads :]
        logit = a_dst + z_src[own, width:]
        if edge_term is not None:
            logit = logit + edge_term[edges]
        derivative = torch.full_like(logit, slope).masked_fill_(logit > 0, 1)
        alpha = torch.exp(logit * derivative - top)
        coefficient, alone = alpha, z_src[own, :width].unflatten(1, (heads, -1))
        if rule is not None:
            factors = _edge_factors(rule, False, own, columns, duplicate, heads).to(alpha.dtype)
            coefficient, alone = alpha * factors, alone * factors[..., None]
        if bias is not None:  # y is rounded so
            alone = (alone + bias.view(heads, -1)) - bias.view(heads, -1)
        gy = remote[columns, :g_width].unflatten(1, (1 if shared else heads, -1))
        gradient = ((gy * alone).sum(2) - shift) * (alpha * derivative)
        gz.index_add_(0, own, (gy * coefficient[..., None]).flatten(1))
        ga_src.index_add_(0, own, gradient)
        ga_dst.index_add_(0, columns if returns is None else returns[edges].to(torch.int64), gradient)
        if g_edge_term is not None:
            g_edge_term[edges] = gradient


def elu(out: Tensor, x: Tensor) -> None:
    out.copy_(torch.where(x > 0, x, torch.exp(x.clamp_max(0)) - 1))


def elu_gradient(
    out: Tensor,
    gy: Tensor,
    y: Tensor | None,
    x: Tensor | None,
    dots: Tensor | None,
    bias: Tensor | None,
    sums: Tensor | None,
    scaled: bool,
) -> None:
    gradient = gy if y is None else gy * torch.where(y > 0, torch.ones_like(y), y + 1)
    if sums is not None:
        sums += gradient.sum(0)
    if scaled and dots is not None:
        gradient = (gradient.unflatten(1, (dots.shape[1], -1)) * dots[..., None]).flatten(1)
    if dots is not None and x is not None:
        dots.copy_((gradient * (x if bias is None else x - bias)).unflatten(1, (dots.shape[1], -1)).sum(2))
    out.copy_(gradient)


def normalise(y: Tensor, denominator: Tensor, bias: Tensor | None) -> None:
    factor = torch.where(denominator == 0, torch.zeros_like(denominator), 1 / denominator)
    y.unflatten(1, (denominator.shape[1], -1)).mul_(factor.unsqueeze(2))
    if bias is not None:
        y += bias


def multiply(out: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, add: bool) -> None:
    x = x.to(weight.dtype)
    if add:
        out.addmm_(x, weight)
    elif bias is None:
        torch.mm(x, weight, out=out)
    else:
        torch.addmm(bias, x, weight, out=out)


def relu_gradient(out: Tensor, gradient: Tensor, y: Tensor, scale: float) -> None:
    out.copy_(torch.where(y <= 0, 0, gradient * scale))


def bias_gradient(sums: Tensor, gy: Tensor) -> None:
    sums += gy.sum(0)


def cross_entropy(gradient: Tensor | None, logits: Tensor, rows: Tensor | None, labels: Tensor) -> tuple[float, int]:
    taken = torch.arange(labels.numel()) if rows is None else rows
    bad = (taken < 0) | (taken >= logits.shape[0]) | (labels < 0) | (labels >= logits.shape[1])
    if bad.any():
        return 0.0, int(bad.nonzero()[0])
    log_p, label = torch.log_softmax(logits[taken], 1), labels.unsqueeze(1)
    if gradient is not None:
        p = log_p.exp()
        gradient[taken] = p.scatter_add_(1, label, p.new_full(label.shape, -1))
    return -log_p.gather(1, label).sum(dtype=torch.float64).item(), -1
