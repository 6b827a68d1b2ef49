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
from typing import Any

import torch

from . import library
from .aggregation import ALL_ROWS, BLOCK, ROWS
from .attention import DROPPED, NO_MEMORY, OWN_COLUMNS, Dropout, checked_heads, of_dropout
from .interface import SCORES
from .kernel import kernel

#: `own_width` and so on are sizes of `RowScores.sizes`. Of mixed rows an edge has a type.
_COMMON = {
    "source": "type of x as streamed (columns, source_width)",
    **BLOCK,
    "rows": ROWS,
    "attention": "optional type of x [width]",
    "weight": "optional contiguous type of x (weight_rows, weight_columns)",
    "edge": "optional type of x (all_edges, weight_rows)",
    "types": "optional int32 as edge [all_edges]",
    "places": "optional index [edges]",
    **DROPPED,
    **dict.fromkeys(("heads", "slope", "score", "width", "head_width", "own_width", "source_width"), ...),
    "weight_columns": None,
    "place_bytes": 0,
}
_score_forward = kernel(
    "hg_attend_forward",
    {
        "x": "float as own (n, own_width)",
        "y": "written type of x as sums (n, width)",
        "running_max": "written type of x as maximum (n, heads)",
        "denominator": "written type of x (n, heads)",
    }
    | _COMMON,
    without=ALL_ROWS,
    memory=NO_MEMORY,
)(None)
_score_backward = kernel(
    "hg_score_backward",
    {
        "x": "float as own (n, own_width)",
        "gy": "type of x (n, width)",
        "y": "type of x (n, width)",
        "top": "type of x as maximum (n, heads)",
        "share": "type of x as denominator (n, heads)",
        "g_x": "written type of x as sums (n, own_width)",
        "g_source": "optional written type of x as ga_dst (returned, source_width)",
        "g_attention": "optional written type of x [width]",
        "g_weight": "optional written contiguous type of x (weight_rows, weight_columns)",
        "returns": "optional int32 [edges]",
    }
    | _COMMON,
    without=(*ALL_ROWS, OWN_COLUMNS),
    memory=NO_MEMORY,
)(None)


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
    return library.load().native is not None and all(each.dtype in (torch.float32, torch.float64) for each in matrices)


def _given(scores: RowScores, source: torch.Tensor) -> dict[str, Any]:
    """The arguments that both directions have."""
    heads, width, weight = checked_heads(scores.heads), scores.width(source), scores.weight
    if width < 1 or width % heads:
        raise ValueError(f"source: expected a positive multiple of {heads} heads as width, got {tuple(source.shape)}")
    own_width, source_width = scores.widths(width)
    given = {"source": source, "attention": scores.attention, "heads": heads, "slope": scores.slope}
    given |= {"score": scores.kind, "width": width, "head_width": width // heads}
    given |= {"own_width": own_width, "source_width": source_width, **of_dropout(scores.dropout)}
    if weight is None:
        return given
    if scores.edge is None or scores.places is None:
        raise ValueError("edge, places: expected torch tensors with weight, got None")
    given |= {"weight": weight.contiguous(), "types" if scores.mixed else "edge": scores.edge, "places": scores.places}
    if not scores.mixed:
        given["weight_columns"] = width
    return given | {"place_bytes": scores.places.element_size()}


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
    _score_forward(x, *sums, indptr=indptr, indices=indices, rows=rows, **_given(scores, source))


def score_backward(
    scores: RowScores,
    gradients: tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None, torch.Tensor | None],
    saved: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor],
    source: torch.Tensor,
    **block: Any,
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
        source: as forwards.
        block: indptr, indices, rows, as forwards. returns: (E,) int32 or None: the row of g_source that each edge adds
            to, in place of its column.

    Raises:
        ValueError: a wrong dtype, shape or layout.
        MemoryError: no memory for partial results.
    """
    _score_backward(*saved, *gradients, **block, **_given(scores, source))
