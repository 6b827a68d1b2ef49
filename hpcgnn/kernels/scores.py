"""Attention over blocks of the adjacency whose scores are made of whole rows, as of GATv2 and of transformers.

S. Brody et al., "How Attentive are Graph Attention Networks?", ICLR 2022; Y. Shi et al., "Masked Label Prediction",
IJCAI 2021. The softmax is formed online as in attention.py: `score_forward` once per block, then `attend_finish`. The
gradient is formed at the owner of the destinations, `score_backward` once per block, and a row returns to each source.
Scores and weights exist for a few edges at a time only, or for a wave of edges where there are several threads.

Only the compiled library has these kernels (`scores_rows`). Without it the general rule (ops/propagate.py) does the
same, with the same draws of dropout.
"""

from dataclasses import dataclass
from typing import cast

import torch

from . import checks
from .attention import Dropout, dropout_rule, structure, width_of
from .interface import SCORES
from .library import kernels, load
from .native import Native


@dataclass(frozen=True)
class RowScores:
    """Scores of a destination's row x and a source's row z, per head of `heads`.

    Attributes:
        heads: their number H.
        attention: (F,) for <attention, LeakyReLU(x + z)>, where z is the value as well; None: <x, z>, with the values
            in another F columns of the sources' rows.
        slope: of LeakyReLU.
        dropout: None or (p, key, dst_ids (n,) int64, src_ids (columns,) int64); see `ops.softmax`.
    """

    heads: int
    attention: torch.Tensor | None = None
    slope: float = 0.0
    dropout: Dropout | None = None

    @property
    def kind(self) -> int:
        """The code of HG_SCORE_SUM or HG_SCORE_PRODUCT."""
        return SCORES["product" if self.attention is None else "sum"]


def scores_rows(*matrices: torch.Tensor) -> bool:
    """Whether the two functions below are there for these matrices."""
    return isinstance(load().kernels, Native) and all(each.dtype in (torch.float32, torch.float64) for each in matrices)


def _call(
    function: str,
    scores: RowScores,
    sums: torch.Tensor,
    indptr: torch.Tensor,
    tensors: dict[str, torch.Tensor | None],
    **whole_rows: torch.Tensor,
) -> None:
    """Check what both directions have, and call. whole_rows: others like sums (n, F), by the name of their field."""
    source, indices, rows = tensors["streamed"], tensors["indices"], tensors["rows"]
    assert source is not None and indices is not None, "both are required"
    width, num, heads = width_of("sums", sums, scores.heads), sums.shape[0], scores.heads
    for name, tensor in whole_rows.items():
        checks.matrix(name, tensor, (sums.dtype,), rows=num, columns=width)
    checks.matrix("source", source, (sums.dtype,), columns=2 * width if scores.attention is None else width)
    for name in ("maximum", "denominator"):
        checks.matrix(name, tensors[name], (sums.dtype,), rows=num, columns=heads)
    if scores.attention is not None:
        checks.vector("attention", scores.attention, sums.dtype, width)
    structure(indptr, indices, rows, num, {}, sums.dtype, heads)
    rule = dropout_rule(scores.dropout, num, source.shape[0], forward=True)
    given = tensors | whole_rows | {"attention": scores.attention}
    native = cast(Native, kernels())  # `scores_rows` holds, or who watches it
    native.attend(function, sums, indptr, given, heads, float(scores.slope), rule, score=scores.kind)


def score_forward(
    scores: RowScores,
    sums: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    x: torch.Tensor,
    source: torch.Tensor,
    indptr: torch.Tensor,
    indices: torch.Tensor,
    rows: torch.Tensor | None = None,
) -> None:
    """Takes the edges of one block into the softmax sums of the rows it stores; see `attend_forward`.

    Ranges of indices are not checked (see `check_block`). Results do not depend on the number of threads.

    Args:
        scores: RowScores.
        sums: (y (n, F), running_max (n, H), denominator (n, H)): 0, -inf and 0 before the first block.
        x: (n, F) of the destinations; float32 or float64, as all others.
        source: (n_src, F), or (n_src, 2 F) without attention vectors.
        indptr, indices, rows: the block.

    Raises:
        ValueError: a wrong dtype, shape or layout.
        MemoryError: no memory for partial results.
    """
    y, running_max, denominator = sums
    tensors: dict[str, torch.Tensor | None] = {"streamed": source, "indices": indices, "rows": rows}
    tensors |= {"maximum": running_max, "denominator": denominator}
    _call("hg_attend_forward", scores, y, indptr, tensors, own=x)
    for written in sums:
        checks.written(written)


def score_backward(
    scores: RowScores,
    gradients: tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None],
    saved: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor],
    source: torch.Tensor,
    indptr: torch.Tensor,
    indices: torch.Tensor,
    rows: torch.Tensor | None = None,
    returns: torch.Tensor | None = None,
) -> None:
    """Adds the gradients that come over the edges of one block, at the owner of the destinations.

    With alpha[e, h] = exp(score - top[i, h]) share[i, h], and m the mask of dropout over 1 - p:

        g_value[e, h] = m alpha gy[i, h];  g_score[e, h] = alpha (<gy[i, h], m value[j, h]> - <gy[i, h], y[i, h]>)

    Both inner products are rounded alike, so that their difference is 0 where one edge outweighs the others. Results do
    not depend on the number of threads, bit for bit.

    Args:
        scores: RowScores, as forwards.
        gradients: (g_x (n, F), g_source or None, g_attention (F,) or None), added to; g_source has a row for each
            column, or as many as `returns` names.
        saved: (x, gy, y, top, share): (n, F) three times, (n, H) twice, the last two of `attend_finish`.
        source, indptr, indices, rows: as forwards.
        returns: (E,) int32 or None: the row of g_source that each edge adds to, in place of its column.

    Raises:
        ValueError: a wrong dtype, shape or layout.
        MemoryError: no memory for partial results.
    """
    g_x, g_source, g_attention = gradients
    x, gy, y, top, share = saved
    if g_source is not None:
        count = source.shape[0] if returns is None else None
        checks.matrix("g_source", g_source, (g_x.dtype,), rows=count, columns=source.shape[1])
    if g_attention is not None:
        checks.vector("g_attention", g_attention, g_x.dtype, g_x.shape[1])
    checks.vector("returns", returns, torch.int32, indices.shape[0], optional=True)
    tensors: dict[str, torch.Tensor | None] = {"streamed": source, "indices": indices, "rows": rows, "returns": returns}
    tensors |= {"maximum": top, "denominator": share, "ga_dst": g_source, "g_attention": g_attention}
    _call("hg_score_backward", scores, g_x, indptr, tensors, own=x, gy=gy, y=y)
    for written in gradients:
        if written is not None:
            checks.written(written)
