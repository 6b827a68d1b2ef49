"""Attention over blocks of the adjacency whose scores are made of whole rows, as of GATv2 and of transformers.

S. Brody et al., "How Attentive are Graph Attention Networks?", ICLR 2022; Y. Shi et al., "Masked Label Prediction",
IJCAI 2021. The softmax is formed online as in attention.py: `score_forward` once per block, then `attend_finish`. The
gradient is formed at the owner of the destinations, `score_backward` once per block, and a row returns to each source.
Scores and weights exist for a few edges at a time only, or for a wave of edges where there are several threads.

The data of edges may take part (native/attention_edges.h): features that a map adds to the sources' rows, or the type,
whose coefficients mix the rows of bases (relational attention). Rows are made anew for a few edges at a time.

Only the compiled library has these kernels (`scores_rows`). Without it the general rule (ops/propagate.py) does the
same, with the same draws of dropout.
"""

from dataclasses import dataclass, replace

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
        dropout: None or (p, key, dst_ids (n,) int64, src_ids (columns,) int64); see `ops.reducers`.
        weight: None, or (K, F) of the edges' features: z + edge weight is scored in place of z, and without attention
            vectors the values have it added as well. Of mixed rows (types, B): an edge's row of it mixes those of the
            bases.
        edge: with weight: (E_p, K) features, or of mixed rows int32 (E_p,) types.
        places: with weight: int32 or int64 (E,), the row in `edge` of each edge of the block.
        mixed: whether sources' rows are [B values of F | B halves of H], and own rows B halves of H. The mixed halves'
            LeakyReLU(x + z) is the score then.
    """

    heads: int
    attention: torch.Tensor | None = None
    slope: float = 0.0
    dropout: Dropout | None = None
    weight: torch.Tensor | None = None
    edge: torch.Tensor | None = None
    places: torch.Tensor | None = None
    mixed: bool = False

    @property
    def kind(self) -> int:
        """The code of HG_SCORE_SUM, HG_SCORE_PRODUCT or HG_SCORE_MIXED."""
        return SCORES["mixed" if self.mixed else "product" if self.attention is None else "sum"]

    def at(self, places: torch.Tensor | None) -> "RowScores":
        """The same for the edges of a block."""
        return self if self.weight is None else replace(self, places=places)

    def widths(self, width: int) -> tuple[int, int]:
        """(columns of a destination's row, of a source's), from F."""
        if self.mixed:
            bases = self._weight.shape[1]
            return bases * self.heads, bases * (width + self.heads)
        return width, 2 * width if self.attention is None else width

    def width(self, source: torch.Tensor) -> int:
        """F, from sources' rows."""
        if self.mixed:
            return source.shape[1] // self._weight.shape[1] - self.heads
        return source.shape[1] // (2 if self.attention is None else 1)

    @property
    def _weight(self) -> torch.Tensor:
        assert self.weight is not None, "mixed rows have coefficients"
        return self.weight


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
    """Check what both directions have, and call. whole_rows: own (n, F), or of mixed rows (n, B H), and others (n, F),
    by the name of their field; sums is like one of them.
    """
    source, indices, rows = tensors["streamed"], tensors["indices"], tensors["rows"]
    assert source is not None and indices is not None, "both are required"
    (num, _), heads = sums.shape, scores.heads
    width = scores.width(source) if scores.mixed else width_of("sums", sums, heads)
    of_own, of_source = scores.widths(width)
    checks.matrix("sums", sums, (torch.float32, torch.float64), columns=of_own if "gy" in whole_rows else width)
    for name, tensor in whole_rows.items():
        checks.matrix(name, tensor, (sums.dtype,), rows=num, columns=of_own if name == "own" else width)
    checks.matrix("source", source, (sums.dtype,), columns=of_source)
    for name in ("maximum", "denominator"):
        checks.matrix(name, tensors[name], (sums.dtype,), rows=num, columns=heads)
    if scores.attention is not None:
        checks.vector("attention", scores.attention, sums.dtype, width)
    structure(indptr, indices, rows, num, {}, sums.dtype, heads)
    rule = dropout_rule(scores.dropout, num, source.shape[0], forward=True)
    given = tensors | whole_rows | {"attention": scores.attention}
    more = {"score": scores.kind, "head_width": width // heads}
    if scores.weight is not None:
        # Named here: what it may copy lives until the call is over.
        given["weight"] = scores.weight.contiguous()
        given |= {"edge": scores.edge, "places": scores.places}
        more |= _edges(scores, width, sums.dtype, len(indices))
    kernels().attend(function, sums, indptr, given, heads, float(scores.slope), rule, **more)


def _edges(scores: RowScores, width: int, dtype: torch.dtype, count: int) -> dict[str, int]:
    """Check the data of edges, and return their sizes."""
    weight, places = scores._weight, scores.places
    checks.matrix("weight", weight, (dtype,), columns=None if scores.mixed else width)
    if scores.mixed:
        checks.vector("edge", scores.edge, torch.int32, None)
    else:
        checks.matrix("edge", scores.edge, (dtype,), columns=len(weight))
    wide = places is not None and places.dtype == torch.int64
    checks.vector("places", places, torch.int64 if wide else torch.int32, count)
    return {"weight_rows": weight.shape[0], "weight_columns": weight.shape[1], "place_bytes": 8 if wide else 4}


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
        x: (n, F) of the destinations, or of mixed rows (n, B H); float32 or float64, as all others.
        source: (n_src, F), or (n_src, 2 F) without attention vectors, or of mixed rows (n_src, B (F + H)).
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
    gradients: tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None, torch.Tensor | None],
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
        gradients: (g_x, g_source or None, g_attention (F,) or None, g_weight or None), added to; g_source has a row
            for each column, or as many as `returns` names.
        saved: (x, gy, y, top, share): x as forwards, (n, F) twice, (n, H) twice, the last two of `attend_finish`.
        source, indptr, indices, rows: as forwards.
        returns: (E,) int32 or None: the row of g_source that each edge adds to, in place of its column.

    Raises:
        ValueError: a wrong dtype, shape or layout.
        MemoryError: no memory for partial results.
    """
    g_x, g_source, g_attention, g_weight = gradients
    x, gy, y, top, share = saved
    if g_source is not None:
        count = source.shape[0] if returns is None else None
        checks.matrix("g_source", g_source, (g_x.dtype,), rows=count, columns=source.shape[1])
    if g_attention is not None:
        checks.vector("g_attention", g_attention, g_x.dtype, g_x.shape[1])
    if g_weight is not None and scores.weight is not None:
        checks.matrix("g_weight", g_weight, (g_x.dtype,), rows=len(scores.weight), columns=scores.weight.shape[1])
    checks.vector("returns", returns, torch.int32, indices.shape[0], optional=True)
    tensors: dict[str, torch.Tensor | None] = {"streamed": source, "indices": indices, "rows": rows, "returns": returns}
    tensors |= {"maximum": top, "denominator": share, "ga_dst": g_source}
    tensors |= {"g_attention": g_attention, "g_weight": g_weight}
    _call("hg_score_backward", scores, g_x, indptr, tensors, own=x, gy=gy, y=y)
    for written in gradients:
        if written is not None:
            checks.written(written)
