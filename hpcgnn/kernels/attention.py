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

import torch

from . import checks
from .interface import EdgeRule
from .library import kernels
from .masking import rule as rule_of
from .randomness import checked_key

_FLOATS = (torch.float32, torch.float64)
#: (p, key, dst_ids, src_ids)
Dropout = tuple[float, int, torch.Tensor, torch.Tensor]


def dropout_rule(dropout: Dropout | None, row_ids: int, column_ids: int, forward: bool) -> EdgeRule | None:
    """(key, threshold, scale, ids of rows, ids of columns), or None where nothing is dropped."""
    if dropout is None:
        return None
    if not isinstance(dropout, tuple) or len(dropout) != 4:
        raise ValueError(f"dropout: expected None or (p, key, dst_ids, src_ids), got {dropout!r}")
    p, key, dst_ids, src_ids = dropout
    checks.vector("dst_ids", dst_ids, torch.int64, row_ids if forward else column_ids)
    checks.vector("src_ids", src_ids, torch.int64, column_ids if forward else row_ids)
    threshold, scale = rule_of(p)
    if threshold == 0:
        return None
    ids = (dst_ids, src_ids) if forward else (src_ids, dst_ids)
    return (checked_key(key), min(threshold, 2**32 - 1), scale, *ids)  # p = 1: the scale is 0


def structure(
    indptr: torch.Tensor,
    indices: torch.Tensor,
    rows: torch.Tensor | None,
    num_rows: int,
    edge_terms: dict[str, torch.Tensor | None],
    dtype: torch.dtype,
    heads: int,
) -> None:
    num_stored = checks.row_pointer(indptr)
    checks.vector("indices", indices, torch.int32, None)
    checks.vector("rows", rows, torch.int32, num_stored, optional=True)
    if rows is None and num_stored != num_rows:
        raise ValueError(
            f"indptr: expected {num_rows + 1} entries for {num_rows} rows, got {num_stored + 1}; or pass rows"
        )
    for name, term in edge_terms.items():
        if term is not None:
            checks.matrix(name, term, (dtype,), rows=indices.shape[0], columns=heads)


def width_of(name: str, tensor: torch.Tensor, heads: int) -> int:
    """The width F of sums (n, F) for this number of heads."""
    checks.matrix(name, tensor, _FLOATS)
    if not isinstance(heads, int) or heads < 1:
        raise ValueError(f"heads: expected an integer of at least 1, got {heads!r}")
    if tensor.shape[1] == 0 or tensor.shape[1] % heads:
        raise ValueError(f"{name}: expected a positive multiple of {heads} heads as width, got {tuple(tensor.shape)}")
    return tensor.shape[1]


def attend_forward(
    y: torch.Tensor,
    running_max: torch.Tensor,
    denominator: torch.Tensor,
    a_dst: torch.Tensor,
    source: torch.Tensor,
    indptr: torch.Tensor,
    indices: torch.Tensor,
    *,
    heads: int,
    slope: float,
    rows: torch.Tensor | None = None,
    edge_term: torch.Tensor | None = None,
    dropout: Dropout | None = None,
    complete: bool = False,
    bias: torch.Tensor | None = None,
) -> None:
    """Takes the edges of one block into the softmax sums of the rows it stores.

    With e in [indptr[i], indptr[i+1]), r = rows[i] (or i), j = indices[e], [z | a_src] = source:

        logit[e, h]       = leaky_relu(a_dst[r, h] + a_src[j, h] + edge_term[e, h]; slope)
        running_max[r, h] = max(itself, logit[e, h] over e); y and denominator are scaled to the new maximum
        denominator[r, h] += sum over e of exp(logit[e, h] - running_max[r, h])
        y[r, h]           += sum over e of mask[e, h] / (1 - p) * exp(logit[e, h] - running_max[r, h]) * z[j, h]

    Rows of all matrices are contiguous and any distance apart. Ranges of indices are not checked (see `check_block`).
    Results do not depend on the number of threads; between orders of blocks they differ by rounding. Raises ValueError
    for a wrong dtype, shape or layout, MemoryError.

    Args:
        y: (n_dst, F), 0 before the first block; float32 or float64, as all others.
        running_max: (n_dst, H), -inf before the first block.
        denominator: (n_dst, H), 0 before the first block.
        a_dst, source: (n_dst, H) and (n_src, F + H).
        indptr, indices: (R + 1,) int64, may start above 0; (E,) int32.
        rows: (R,) int32, increasing; None requires R == n_dst.
        edge_term: (E, H), the edge's part of the logit before the leaky ReLU, or None.
        dropout: None or (p, key, dst_ids (n_dst,) int64, src_ids (n_src,) int64), for attention weights at rate p. The
            word of (edge, h) is word h % 4 of Philox4x32-10 at the counter `(dst mod 2**32, src mod 2**32,
            dst >> 32 & 0xffff | (src >> 32 & 0xffff) << 16, occurrence * ceil(H / 4) + h // 4)`. A word of at least
            p * 2**32 keeps. `occurrence` counts the edges of the same ends before it. They must be neighbours in the
            row, and in the same block.
        complete: whether the block has all edges of all rows (then rows is None). Earlier values of y, running_max and
            denominator do not matter then. A row is written once instead of three times: y is divided by the
            denominator and gets the bias, and `attend_finish` only makes lse.
        bias: (F,) or None, with `complete` only.
    """
    width = width_of("y", y, heads)
    num, dtypes = y.shape[0], (y.dtype,)
    checks.matrix("running_max", running_max, dtypes, rows=num, columns=heads)
    checks.matrix("denominator", denominator, dtypes, rows=num, columns=heads)
    checks.matrix("a_dst", a_dst, dtypes, rows=num, columns=heads)
    checks.matrix("source", source, dtypes, columns=width + heads)
    structure(indptr, indices, rows, num, {"edge_term": edge_term}, y.dtype, heads)
    rule = dropout_rule(dropout, num, source.shape[0], forward=True)
    if bias is not None:
        checks.vector("bias", bias, y.dtype, width)
    if (complete and rows is not None) or (bias is not None and not complete):
        raise ValueError("complete: expected no rows with it, and a bias only with it")
    kernels().attend_forward(
        y,
        running_max,
        denominator,
        a_dst,
        source,
        indptr,
        indices,
        heads,
        float(slope),
        rows,
        edge_term,
        rule,
        complete,
        bias,
    )
    for written in (y, running_max, denominator):
        checks.written(written)


def attend_finish(
    y: torch.Tensor | None,
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
        y: (n, F), or None if `attend_forward` has finished it.
        running_max, denominator: (n, H); denominator is overwritten.
        lse: (n, H), may be running_max.
        bias: (F,) or None.
        share: (n, H), gets 1 / denominator, and lse is then running_max alone; or None.
    """
    heads = lse.shape[1] if isinstance(lse, torch.Tensor) and lse.dim() == 2 else 1
    checks.matrix("lse", lse, _FLOATS)
    if y is not None:
        width_of("y", y, heads)
    like = lse if y is None else y
    for name, tensor in (("running_max", running_max), ("denominator", denominator), ("lse", lse)):
        checks.matrix(name, tensor, (like.dtype,), rows=like.shape[0], columns=heads)
    if share is not None:
        checks.matrix("share", share, (like.dtype,), rows=like.shape[0], columns=heads)
    if y is None:
        if bias is not None:
            raise ValueError("bias: expected None without y")
    else:
        if bias is not None:
            checks.vector("bias", bias, y.dtype, y.shape[1])
        kernels().normalise(y, denominator, bias)
        checks.written(y)
    empty = denominator == 0
    if share is None:
        torch.add(running_max, denominator.log_(), out=lse).masked_fill_(empty, torch.inf)
    else:
        torch.reciprocal(denominator.masked_fill_(empty, 1), out=share)
        lse.copy_(running_max).masked_fill_(empty, torch.inf)


def attend_backward(
    gz: torch.Tensor,
    ga_src: torch.Tensor,
    ga_dst: torch.Tensor,
    z_src: torch.Tensor,
    remote: torch.Tensor,
    indptr: torch.Tensor,
    indices: torch.Tensor,
    *,
    heads: int,
    slope: float,
    shared: bool = False,
    rows: torch.Tensor | None = None,
    edge_term: torch.Tensor | None = None,
    g_edge_term: torch.Tensor | None = None,
    dropout: Dropout | None = None,
    complete: bool = False,
    bias: torch.Tensor | None = None,
    returns: torch.Tensor | None = None,
) -> None:
    """Adds the gradients that come over the edges of one transposed block, at the owner of the sources.

    Stored rows are own nodes j (= rows[i] or i) as sources, columns i = indices[e] are destinations of their out-edges.
    With [z | a_src] = z_src, [gy | a_dst | lse | D] = remote, m = mask / (1 - p) or 1:

        s         = a_dst[i, h] + a_src[j, h] + edge_term[e, h]
        alpha     = exp(leaky_relu(s; slope) - lse[i, h])
        gz[j, h] += m * alpha * gy[i, h]
        da        = alpha * (<gy[i, h], m * z[j, h]> - D[i, h]) * (1 if s > 0 else slope)
        ga_src[j, h] += da;  ga_dst[i, h] += da;  g_edge_term[e, h] = da

    The rest is as for `attend_forward`. Results, ga_dst included, do not depend on the number of threads, bit for bit:
    every element is summed in the order of the edges (longer rows in chunks of 8192 edges).

    Args:
        gz, ga_src: (n, F) and (n, H), added to; float32 or float64, as all others.
        ga_dst: (n_cols, H), added to; must not overlap the others.
        z_src: (n, F + H).
        remote: (n_cols, G + 3 H) with G = F. D[i, h] = <gy[i, h], y[i, h]>, with y and lse of `attend_finish`. With a
            share, the caller has multiplied gy by it, and so D; not with `shared`, whose gy serves several shares.
        shared: whether heads are averaged. Then G = F / H: one gy for every head, which the caller has divided by H.
        edge_term, g_edge_term: (E, H) or None, in the order of this block's edges; the gradient is written.
        dropout: as forwards: (p, key, dst_ids (n_cols,), src_ids (n,)), with the ids of the same ends.
        complete: whether the block has all edges of all rows (then rows is None). gz and ga_src then become the
            gradients, whatever their earlier values, and may be the columns of z_src. ga_dst is added to.
        bias: (F,) or None. It was added to y, and its subtraction has rounded D. So m z is rounded alike. If one edge
            outweighs all others, y is m z to the bit, and da exactly 0 if `elu_gradient` has made D.
        returns: (E,) int32 or None: the row of ga_dst that each edge adds to, in place of its column. ga_dst may then
            have any number of rows; not checked.
    """
    width = width_of("gz", gz, heads)
    num, dtypes = gz.shape[0], (gz.dtype,)
    checks.matrix("ga_src", ga_src, dtypes, rows=num, columns=heads)
    checks.matrix("z_src", z_src, dtypes, rows=num, columns=width + heads)
    checks.matrix("remote", remote, dtypes, columns=(width // heads if shared else width) + 3 * heads)
    checks.matrix("ga_dst", ga_dst, dtypes, rows=remote.shape[0] if returns is None else None, columns=heads)
    checks.vector("returns", returns, torch.int32, indices.shape[0], optional=True)
    edge_terms = {"edge_term": edge_term, "g_edge_term": g_edge_term}
    structure(indptr, indices, rows, num, edge_terms, gz.dtype, heads)
    rule = dropout_rule(dropout, num, remote.shape[0], forward=False)
    if bias is not None:
        checks.vector("bias", bias, gz.dtype, width)
    if complete and rows is not None:
        raise ValueError("complete: expected no rows with it")
    kernels().attend_backward(
        gz,
        ga_src,
        ga_dst,
        z_src,
        remote,
        indptr,
        indices,
        heads,
        float(slope),
        bool(shared),
        rows,
        edge_term,
        g_edge_term,
        rule,
        bool(complete),
        bias,
        returns,
    )
    for written in (gz, ga_src, ga_dst, *(() if g_edge_term is None else (g_edge_term,))):
        checks.written(written)
