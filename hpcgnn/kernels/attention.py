"""Additive attention over blocks of the adjacency: sums weighed by softmax(leaky_relu(a_dst + a_src)), and gradients.

P. Veličković et al., "Graph Attention Networks", ICLR 2018. Blocks arrive one after another, so the softmax is formed
online (M. Milakov, N. Gimelshein, "Online normalizer calculation for softmax", 2018; T. Dao et al., "FlashAttention",
NeurIPS 2022): `attend_forward` once per block, then `attend_finish`; a single block is begun and ended in the same
pass. The gradient is formed at the owner of the *source*, from the destinations' [gy | a_dst, lse, D] streamed past it,
with nothing fetched twice: `attend_backward` once per transposed block.

With large features the softmax is saturated, and the gradient of a logit is 0. Yet it is a difference of inner products
as large as the features. So both terms of the difference are rounded alike. Also lse = max + log(denominator) would
lose the logarithm. So lse may be the maximum alone, and gy is divided by the denominator (if heads are not averaged).

Attention weights exist for a few edges at a time only. Notation: H heads of width D, F = H·D; columns h·D to
h·D + D - 1 of a row belong to head h.
"""

from typing import Any

import torch

from .aggregation import ALL_ROWS, BLOCK, ROWS, edge_pieces
from .kernel import Arguments, kernel
from .randomness import philox, rule

_LOW = 0xFFFFFFFF
#: (p, key, dst_ids, src_ids)
Dropout = tuple[float, int, torch.Tensor, torch.Tensor]
#: Of dropout, in the tables of all kernels of attention.
DROPPED = {
    "row_ids": "optional int64 [n]",
    "column_ids": "optional int64 [columns]",
    "scale": 1.0,
}
#: Without `returns`, gradients of the other end have a row for each column.
OWN_COLUMNS = ("returns", "returned", "columns", "returns")
NO_MEMORY = "attention: no memory for the partial results of a block"


def of_dropout(dropout: Dropout | None, forward: bool = True) -> dict[str, Any]:
    """The arguments of DROPPED. forward: whether rows are destinations."""
    if dropout is None:
        return {}
    p, key, *ids = dropout
    threshold, scale = rule(p)
    if threshold == 0:
        return {}
    row_ids, column_ids = ids if forward else ids[::-1]
    return {"key": key, "threshold": threshold, "scale": scale, "row_ids": row_ids, "column_ids": column_ids}


def edge_words(dst: torch.Tensor, src: torch.Tensor, duplicate: torch.Tensor, columns: int, key: int) -> torch.Tensor:
    """The words of edges: int64 (edges, columns). dst, src: original ids; duplicate: counts equal edges before."""
    groups = (columns + 3) // 4
    counters = torch.empty(dst.numel(), groups, 4, dtype=torch.int64)
    counters[..., 0] = (dst & _LOW)[:, None]
    counters[..., 1] = (src & _LOW)[:, None]
    counters[..., 2] = ((dst >> 32) & 0xFFFF | ((src >> 32) & 0xFFFF) << 16)[:, None]
    counters[..., 3] = duplicate[:, None] * groups + torch.arange(groups)
    return philox(counters, key).reshape(dst.numel(), 4 * groups)[:, :columns]


def _factors(a: Arguments, dst: torch.Tensor, src: torch.Tensor, duplicate: torch.Tensor) -> torch.Tensor:
    """Attention dropout's factors 0 or 1 / (1 - p) of edges between these ids: (edges, heads) float64."""
    return (edge_words(dst, src, duplicate, a.heads, a.key) >= a.threshold).to(torch.float64) * a.scale


def _divide(a: Arguments) -> None:
    """y becomes y / denominator + bias, and the bias where there is none to divide by."""
    factor = torch.where(a.denominator == 0, torch.zeros_like(a.denominator), 1 / a.denominator)
    a.y.unflatten(1, (factor.shape[1], -1)).mul_(factor.unsqueeze(2))
    if a.bias is not None:
        a.y.add_(a.bias)


def _normalised(a: Arguments) -> None:
    _divide(a)
    if a.share is not None:
        torch.reciprocal(a.denominator, out=a.share).nan_to_num_(torch.nan, posinf=1.0)
        torch.nan_to_num(a.maximum, torch.nan, torch.inf, torch.inf, out=a.top)


_normalise = kernel(
    "hg_normalise",
    {
        "denominator": "float (rows, heads)",
        "y": "written type of denominator (rows, heads * head_width)",
        "bias": "optional type of denominator [heads * head_width]",
        "maximum": "optional type of denominator (rows, heads)",
        "top": "optional written type of denominator (rows, heads)",
        "share": "optional written type of denominator (rows, heads)",
    },
)(_normalised)


@kernel(
    "hg_attend_forward",
    {
        "y": "written float as sums (n, heads * head_width)",
        "running_max": "written type of y as maximum (n, heads)",
        "denominator": "written type of y (n, heads)",
        "a_dst": "type of y as own (n, heads)",
        "source": "type of y as streamed (columns, heads * head_width + heads)",
        **BLOCK,
        "rows": ROWS,
        "bias": "optional type of y [heads * head_width]",
        **DROPPED,
    },
    without=ALL_ROWS,
    memory=NO_MEMORY,
)
def _attend_forward(a: Arguments) -> None:
    width = a.y.shape[1]
    if a.complete:
        a.y.zero_()
        a.running_max.fill_(-torch.inf)
        a.denominator.zero_()
    for edges, target, columns, duplicate in edge_pieces(a, width):
        if not len(edges):
            continue
        logit = a.a_dst[target] + a.source[columns, width:]
        logit = torch.where(logit > 0, logit, a.slope * logit)
        before = a.running_max.clone()
        a.running_max.scatter_reduce_(0, target[:, None].expand_as(logit), logit, "amax")
        finite = torch.where(a.running_max == -torch.inf, 0, a.running_max)
        factor = torch.where(before == a.running_max, 1, torch.exp(before - finite))
        weight = torch.exp(logit - finite[target])
        a.denominator.mul_(factor).index_add_(0, target, weight)
        a.y.unflatten(1, (a.heads, -1)).mul_(factor[..., None])
        if a.row_ids is not None:
            weight = weight * _factors(a, a.row_ids[target], a.column_ids[columns], duplicate).to(weight.dtype)
        message = a.source[columns, :width].unflatten(1, (a.heads, -1)) * weight[..., None]
        a.y.index_add_(0, target, message.flatten(1))
    if a.complete:
        _divide(a)
        a.denominator.reciprocal_().nan_to_num_(torch.nan, posinf=1.0)
        a.running_max.nan_to_num_(torch.nan, torch.inf, torch.inf)


def attend_forward(
    *tensors: torch.Tensor, heads: int, slope: float, dropout: Dropout | None = None, **more: Any
) -> None:
    """Takes the edges of one block into the softmax sums of the rows it stores.

    With e in [indptr[i], indptr[i+1]), r = rows[i] (or i), j = indices[e], [z | a_src] = source:

        logit[e, h]       = leaky_relu(a_dst[r, h] + a_src[j, h]; slope)
        running_max[r, h] = max(itself, logit[e, h] over e); y and denominator are scaled to the new maximum
        denominator[r, h] += sum over e of exp(logit[e, h] - running_max[r, h])
        y[r, h]           += sum over e of mask[e, h] / (1 - p) * exp(logit[e, h] - running_max[r, h]) * z[j, h]

    Rows of all matrices are contiguous and any distance apart. Ranges of indices are not checked (see `check_block`).
    Results do not depend on the number of threads; between orders of blocks they differ by rounding. Raises ValueError
    for a wrong dtype, shape or layout, MemoryError.

    Args:
        tensors: y, running_max, denominator, a_dst, source, indptr, indices.
        y: (n_dst, F), 0 before the first block; float32 or float64, as all others.
        running_max: (n_dst, H), -inf before the first block.
        denominator: (n_dst, H), 0 before the first block.
        a_dst, source: (n_dst, H) and (n_src, F + H).
        indptr, indices: (R + 1,) int64, may start above 0; (E,) int32.
        rows: (R,) int32, increasing; None requires R == n_dst.
        dropout: None or (p, key, dst_ids (n_dst,) int64, src_ids (n_src,) int64), for attention weights at rate p. The
            word of (edge, h) is word h % 4 of Philox4x32-10 at the counter `(dst mod 2**32, src mod 2**32,
            dst >> 32 & 0xffff | (src >> 32 & 0xffff) << 16, occurrence * ceil(H / 4) + h // 4)`. A word of at least
            p * 2**32 keeps. `occurrence` counts the edges of the same ends before it. They must be neighbours in the
            row, and in the same block.
        complete: whether the block has all edges of all rows (then rows is None). Earlier values of y, running_max and
            denominator do not matter then. A row is written once instead of three times, and needs no
            `attend_finish`: y is that, running_max the lse beside a share, and denominator the share.
        bias: (F,) or None, with `complete` only.
    """
    _attend_forward(*tensors, heads=heads, slope=slope, **of_dropout(dropout), **more)


def attend_begin(y: torch.Tensor, running_max: torch.Tensor, denominator: torch.Tensor) -> None:
    """Before the first block: y (n, F) = 0, running_max (n, H) = -inf, denominator (n, H) = 0."""
    y.zero_()
    running_max.fill_(-torch.inf)
    denominator.zero_()


def attend_finish(
    y: torch.Tensor,
    running_max: torch.Tensor,
    denominator: torch.Tensor,
    lse: torch.Tensor,
    bias: torch.Tensor | None = None,
    share: torch.Tensor | None = None,
) -> None:
    """After the last block: y[r, h] = y[r, h] / denominator[r, h] + bias[h], and lse = running_max + log(denominator).

    Rows without edges get y = bias, lse = +inf, so that exp(logit - lse) = 0, and a share of 1. It makes one pass over
    y. Raises ValueError for a wrong dtype or shape.

    Args:
        y: (n, F).
        running_max, denominator: (n, H); denominator is overwritten without share.
        lse: (n, H), may be running_max.
        bias: (F,) or None.
        share: (n, H), may be denominator, gets 1 / denominator, and lse is then running_max alone; or None.
    """
    # Without edges the maximum is -inf, and the denominator 0.
    if share is not None:
        _normalise(denominator, y, bias, running_max, lse, share)
        return
    _normalise(denominator, y, bias)
    torch.add(running_max, denominator.log_(), out=lse).nan_to_num_(torch.nan, torch.inf, torch.inf)


@kernel(
    "hg_attend_backward",
    {
        "gz": "written float as sums (n, heads * head_width)",
        "ga_src": "written type of gz (n, heads)",
        "ga_dst": "written type of gz (returned, heads)",
        "z_src": "type of gz as own (n, heads * head_width + heads)",
        "remote": "type of gz as streamed (columns, of_gy * head_width + 3 * heads)",
        **BLOCK,
        "rows": ROWS,
        "bias": "optional type of gz [heads * head_width]",
        "returns": "optional int32 [edges]",
        **DROPPED,
    },
    without=(*ALL_ROWS, OWN_COLUMNS),
    memory=NO_MEMORY,
)
def _attend_backward(a: Arguments) -> None:
    width, heads, g_width = a.gz.shape[1], a.heads, a.remote.shape[1] - 3 * a.heads
    z_src = a.z_src
    if a.complete:
        z_src = z_src.clone()
        a.gz.zero_()
        a.ga_src.zero_()
    for edges, own, columns, duplicate in edge_pieces(a, width):
        tail = a.remote[columns, g_width:]
        a_dst, top, shift = tail[:, :heads], tail[:, heads : 2 * heads], tail[:, 2 * heads :]
        logit = a_dst + z_src[own, width:]
        derivative = torch.full_like(logit, a.slope).masked_fill_(logit > 0, 1)
        alpha = torch.exp(logit * derivative - top)
        coefficient, alone = alpha, z_src[own, :width].unflatten(1, (heads, -1))
        if a.row_ids is not None:
            factors = _factors(a, a.column_ids[columns], a.row_ids[own], duplicate).to(alpha.dtype)
            coefficient, alone = alpha * factors, alone * factors[..., None]
        if a.bias is not None:  # y is rounded so
            alone = (alone + a.bias.view(heads, -1)) - a.bias.view(heads, -1)
        gy = a.remote[columns, :g_width].unflatten(1, (1 if a.shared else heads, -1))
        gradient = ((gy * alone).sum(2) - shift) * (alpha * derivative)
        a.gz.index_add_(0, own, (gy * coefficient[..., None]).flatten(1))
        a.ga_src.index_add_(0, own, gradient)
        a.ga_dst.index_add_(0, columns if a.returns is None else a.returns[edges].to(torch.int64), gradient)


def attend_backward(
    *tensors: torch.Tensor,
    heads: int,
    slope: float,
    shared: bool = False,
    dropout: Dropout | None = None,
    **more: Any,
) -> None:
    """Adds the gradients that come over the edges of one transposed block, at the owner of the sources.

    Stored rows are own nodes j (= rows[i] or i) as sources, columns i = indices[e] are destinations of their out-edges.
    With [z | a_src] = z_src, [gy | a_dst | lse | D] = remote, m = mask / (1 - p) or 1:

        s         = a_dst[i, h] + a_src[j, h]
        alpha     = exp(leaky_relu(s; slope) - lse[i, h])
        gz[j, h] += m * alpha * gy[i, h]
        da        = alpha * (<gy[i, h], m * z[j, h]> - D[i, h]) * (1 if s > 0 else slope)
        ga_src[j, h] += da;  ga_dst[i, h] += da

    The rest is as for `attend_forward`. Results, ga_dst included, do not depend on the number of threads, bit for bit:
    every element is summed in the order of the edges (longer rows in chunks of 8192 edges).

    Args:
        tensors: gz, ga_src, ga_dst, z_src, remote, indptr, indices.
        gz, ga_src: (n, F) and (n, H), added to; float32 or float64, as all others.
        ga_dst: (n_cols, H), added to; must not overlap the others.
        z_src: (n, F + H).
        remote: (n_cols, G + 3 H) with G = F. D[i, h] = <gy[i, h], y[i, h]>, with y and lse of `attend_finish`. With a
            share, the caller has multiplied gy by it, and so D; not with `shared`, whose gy serves several shares.
        shared: whether heads are averaged. Then G = F / H: one gy for every head, which the caller has divided by H.
        dropout: as forwards: (p, key, dst_ids (n_cols,), src_ids (n,)), with the ids of the same ends.
        complete: whether the block has all edges of all rows (then rows is None). gz and ga_src then become the
            gradients, whatever their earlier values, and may be the columns of z_src. ga_dst is added to.
        bias: (F,) or None. It was added to y, and its subtraction has rounded D. So m z is rounded alike. If one edge
            outweighs all others, y is m z to the bit, and da exactly 0 if `elu_gradient` has made D.
        returns: (E,) int32 or None: the row of ga_dst that each edge adds to, in place of its column. ga_dst may then
            have any number of rows; not checked.
    """
    more |= of_dropout(dropout, False)
    of_gy = 1 if shared else heads
    _attend_backward(*tensors, heads=heads, of_gy=of_gy, slope=slope, shared=shared, **more)
