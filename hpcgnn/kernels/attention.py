"""Additive attention over blocks of the adjacency: sums weighed by softmax(leaky_relu(a_dst + a_src)), and gradients.

P. Veličković et al., "Graph Attention Networks", ICLR 2018. Blocks arrive one after another, so the softmax is formed
online (M. Milakov, N. Gimelshein, "Online normalizer calculation for softmax", 2018; T. Dao et al., "FlashAttention",
NeurIPS 2022): `attend_forward` once per block, then `attend_finish`; a single block is begun and ended in the same
pass. The gradient is formed at the owner of the *source*, from the destinations' [gy | a_dst, lse, D] streamed past it,
with nothing fetched twice: `attend_backward` once per transposed block.

Features may be large, the softmax then saturated and the gradient of a logit 0, though it is a difference of inner
products as large as the features. Hence what is subtracted is rounded alike, and lse = max + log(denominator), which
would lose the logarithm, may be given as the maximum, gy being divided by the denominator (where heads are not
averaged).

Attention weights exist for a few edges at a time only. Notation: H heads of width D, F = H·D; columns h·D to
h·D + D - 1 of a row belong to head h.
"""

import torch

from . import checks
from .functions import EdgeRule
from .library import kernels
from .masking import rule as rule_of
from .randomness import checked_key

_FLOATS = (torch.float32, torch.float64)
#: (p, key, dst_ids, src_ids)
Dropout = tuple[float, int, torch.Tensor, torch.Tensor]


def _dropout_rule(dropout: Dropout | None, row_ids: int, column_ids: int, forward: bool) -> EdgeRule | None:
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


def _structure(
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


def _width(name: str, tensor: torch.Tensor, heads: int) -> int:
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
        running_max[r, h] = max(itself, logit[e, h] over e); what y and denominator held is scaled to the new maximum
        denominator[r, h] += sum over e of exp(logit[e, h] - running_max[r, h])
        y[r, h]           += sum over e of mask[e, h] / (1 - p) * exp(logit[e, h] - running_max[r, h]) * z[j, h]

    y            (n_dst, F), 0 before the first block; float32 or float64, as all that follow
    running_max  (n_dst, H), -inf before the first block; denominator (n_dst, H), 0 before the first block
    a_dst        (n_dst, H); source (n_src, F + H)
    indptr       (R + 1,) int64, may start above 0; indices (E,) int32; rows (R,) int32, increasing, None: R == n_dst
    edge_term    (E, H), the edge's part of the logit before the leaky ReLU, or None
    dropout      None or (p, key, dst_ids (n_dst,) int64, src_ids (n_src,) int64): attention weights are dropped at
                 rate p. The word of (edge, h) is word h % 4 of Philox4x32-10 at the counter (dst mod 2**32,
                 src mod 2**32, dst >> 32 & 0xffff | (src >> 32 & 0xffff) << 16, occurrence * ceil(H / 4) + h // 4),
                 and a word of at least p * 2**32 keeps. `occurrence` counts the edges of the same ends before it; they
                 must be neighbours in the row, and in the same block.
    complete     whether the block has all edges of all rows (then rows is None): what y, running_max and denominator
    hold
                 before does not matter, and y is divided by the denominator and gets the bias (F,) or None; what is
                 left for `attend_finish` is lse. A row is then written once instead of three times

    Rows of all matrices are contiguous and any distance apart. Ranges of indices are taken for granted (`check_block`).
    Results do not depend on the number of threads; between orders of blocks they differ by rounding. Raises ValueError
    for a wrong dtype, shape or layout, MemoryError.
    """
    width = _width("y", y, heads)
    num, dtypes = y.shape[0], (y.dtype,)
    checks.matrix("running_max", running_max, dtypes, rows=num, columns=heads)
    checks.matrix("denominator", denominator, dtypes, rows=num, columns=heads)
    checks.matrix("a_dst", a_dst, dtypes, rows=num, columns=heads)
    checks.matrix("source", source, dtypes, columns=width + heads)
    _structure(indptr, indices, rows, num, {"edge_term": edge_term}, y.dtype, heads)
    rule = _dropout_rule(dropout, num, source.shape[0], forward=True)
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

    share: (n, H), gets 1 / denominator, and lse then running_max alone; or None. y (n, F), or None where
    `attend_forward` has done its part; bias (F,) or None, the others (n, H), of one dtype; lse may be running_max, and
    denominator is used up. Rows without edges get y = bias, lse = +inf, so that exp(logit - lse) = 0, and a share of 1.
    y is passed over once. Raises ValueError for a wrong dtype or shape.
    """
    heads = lse.shape[1] if isinstance(lse, torch.Tensor) and lse.dim() == 2 else 1
    checks.matrix("lse", lse, _FLOATS)
    if y is not None:
        _width("y", y, heads)
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

    gz           (n, F), ga_src (n, H): added to; float32 or float64, as all that follow
    ga_dst       (n_cols, H): added to; must not overlap the others
    returns      (E,) int32 or None: the row of ga_dst, which may then have any number of rows, that each edge adds to,
                 where that is not its column; not checked
    z_src        (n, F + H)
    remote       (n_cols, G + 3 H) with G = F or, with `shared` (heads are averaged), G = F / H: one gy for every head,
                 which the caller has divided by H. D[i, h] = <gy[i, h], y[i, h]>, y and lse being `attend_finish`'s.
                 With a share, gy is times that, and so D; not with `shared`, where one gy serves several shares
    edge_term    (E, H) or None, in the order of this block's edges, and so its gradient g_edge_term, which is written
    bias         (F,), that was added to y and taken off again for D, which has rounded it: so is m z then; or None.
    Where one
                 edge outweighs all others y is m z to the bit, and da exactly 0 if `elu_gradient` has made D
    dropout      as forwards: (p, key, dst_ids (n_cols,), src_ids (n,)), with the ids of the same ends complete
    whether the block has all edges of all rows (then rows is None): gz and ga_src become the gradients, whatever
                 they hold before, and may be the very columns of z_src (and nothing else of it); ga_dst is added to

    The rest is as for `attend_forward`. Results, ga_dst included, do not depend on the number of threads, bit for bit:
    every element is summed in the order of the edges (rows of more than 8192 edges in chunks of that many).
    """
    width = _width("gz", gz, heads)
    num, dtypes = gz.shape[0], (gz.dtype,)
    checks.matrix("ga_src", ga_src, dtypes, rows=num, columns=heads)
    checks.matrix("z_src", z_src, dtypes, rows=num, columns=width + heads)
    checks.matrix("remote", remote, dtypes, columns=(width // heads if shared else width) + 3 * heads)
    checks.matrix("ga_dst", ga_dst, dtypes, rows=remote.shape[0] if returns is None else None, columns=heads)
    checks.vector("returns", returns, torch.int32, indices.shape[0], optional=True)
    edge_terms = {"edge_term": edge_term, "g_edge_term": g_edge_term}
    _structure(indptr, indices, rows, num, edge_terms, gz.dtype, heads)
    rule = _dropout_rule(dropout, num, remote.shape[0], forward=False)
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
