"""Scores of attention that are made of whole rows, over blocks of the adjacency: of GATv2, transformers, and relational
attention.

S. Brody et al., "How Attentive are Graph Attention Networks?", ICLR 2022; Y. Shi et al., "Masked Label Prediction",
IJCAI 2021. The softmax is formed online as in attention.py: `score_forward` once per block, then `attend_finish`.

All gradients are formed at the owner of the destinations, in a call for each block, and a row returns to each source.
Scores and weights exist for a few edges at a time only, or for a wave of edges where there are several
threads. The data of edges (native/attention_edges.h) are features that a map adds to the sources' rows, or the type,
whose coefficients mix the rows of bases. No result depends on the number of threads, bit for bit. Ranges of indices are
not checked (see `check_block`).

Only the compiled library has these kernels (`rules_rows`). Without it the general rule (ops/propagate.py) does the
same, with the same draws of dropout.
"""

from dataclasses import dataclass
from typing import Any

import torch

from . import library
from .aggregation import ALL_ROWS, BLOCK, ROWS, edge_pieces
from .attention import DROPPED, NO_MEMORY, OWN_COLUMNS, Dropout, of_dropout
from .interface import codes
from .kernel import Arguments, kernel

_SCORE = codes("score_sum", "score_product", "score_mixed")
#: Of both directions; a table's first argument has the dtype of all. `own_width` and so on are sizes of
#: `RowScores.given`. Of mixed rows an edge has a type.
_SCORES = {
    **BLOCK,
    "rows": ROWS,
    "places": "optional index [edges]",
    "source": "type of x as streamed (columns, source_width)",
    "attention": "optional type of x [width]",
    "weight": "optional contiguous type of x (weight_rows, weight_columns)",
    "edge": "optional type of x (all_edges, weight_rows)",
    "types": "optional int32 as edge [all_edges]",
    **DROPPED,
}
#: Takes the edges of one block into the softmax sums of the rows it stores; see `attend_forward`. x: (n, own_width) of
#: the destinations; y (n, F), running_max and denominator (n, H): 0, -inf and 0 before the first block.
score_forward = kernel(
    "hg_attend_forward",
    {
        "x": "float as own (n, own_width)",
        "y": "written type of x as sums (n, width)",
        "running_max": "written type of x as maximum (n, heads)",
        "denominator": "written type of x (n, heads)",
    }
    | _SCORES,
    without=ALL_ROWS,
    memory=NO_MEMORY,
)(None)
#: Adds the gradients that come over the edges of one block, at the owner of the destinations.
#: With alpha[e, h] = exp(score - top[i, h]) share[i, h], and m the mask of dropout over 1 - p:
#:     g_value[e, h] = m alpha gy[i, h];  g_score[e, h] = alpha (<gy[i, h], m value[j, h]> - <gy[i, h], y[i, h]>)
#: Both inner products are rounded alike, so that their difference is 0 where one edge outweighs the others. top and
#: share are of `attend_finish`. returns: the row of g_source that each edge adds to, in place of its column. complete:
#: all edges of all rows are here, so that earlier values of g_x do not matter.
score_backward = kernel(
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
    | _SCORES,
    without=(*ALL_ROWS, OWN_COLUMNS),
    memory=NO_MEMORY,
)(None)


@kernel(
    "hg_score_backward",
    {
        "source": "float as streamed (columns, head_width)",
        "weight": "contiguous type of source (weight_rows, weight_columns)",
        "sums": "written type of source (n, weight_columns * head_width)",
        **BLOCK,
        "rows": ROWS,
        "places": "index [edges]",
        "types": "int32 as edge [all_edges]",
        "factors": "type of source [all_edges]",
        "x": "optional type of source as own (n, weight_columns * head_width)",
        "g_weight": "optional written contiguous type of source (weight_rows, weight_columns)",
        "heads": 1,
        "score": codes("score_related")["score_related"],
    },
    without=ALL_ROWS,
    memory=NO_MEMORY,
)
def _relate(a: Arguments) -> None:
    bases = a.weight.shape[1]
    if a.complete:
        a.sums.zero_()
    for edges, row, columns, _ in edge_pieces(a, a.sums.shape[1]):
        to, place = row if a.rows is None else a.rows[row].long(), a.places[edges]
        kind, factor, rows = a.types[place].long(), a.factors[place].unsqueeze(1), a.source[columns].unsqueeze(1)
        a.sums.index_add_(0, to, ((a.weight[kind] * factor).unsqueeze(2) * rows).flatten(1))
        if a.g_weight is not None:
            a.g_weight.index_add_(0, kind, (a.x[to].unflatten(1, (bases, -1)) * rows).sum(2) * factor)


def relate(sums: torch.Tensor, source: torch.Tensor, weight: torch.Tensor, places: torch.Tensor, **more: Any) -> None:
    """sums (n, B F) += w_e weight[type of e, b] source[column of e] over the edges e of each row, for each basis b.

    Args:
        source: (columns, F), float32 or float64.
        weight: (types, B), contiguous.
        places: int32 or int64 (E,), of each edge of the block among all that have a type.
        more: the block (indptr, indices, rows); types int32 and factors w of all edges. x: (n, B F), with
            g_weight (types, B), to which w_e <x of e's row, source of e's column> is added for each basis. complete:
            the block has all edges of all rows, so that earlier sums do not matter.

    Raises:
        ValueError, MemoryError: a wrong dtype, shape or layout; no memory.
    """
    _relate(source, weight, sums, places=places, place_bytes=places.element_size(), **more)


@dataclass(frozen=True)
class RowScores:
    """Scores of a destination's row x and a source's row z, per head of `heads`.

    Attributes:
        heads: their number H.
        attention: (F,) for <attention, LeakyReLU(x + z)>, where z is the value as well; None: <x, z>, with the values
            in another F columns of the sources' rows.
        slope: of LeakyReLU.
        dropout: None or (p, key, dst_ids (n,) int64, src_ids (columns,) int64); see `ops.reducers`.
        mixed: whether sources' rows are [B values of F | B halves of H], and own rows B halves of H. The mixed halves'
            LeakyReLU(x + z) is the score then.
        weight: z + edge weight is scored in place of z, and without attention vectors the values have it added as well.
            Of mixed rows (types, B): an edge's row of it mixes those of the bases, and `edge` is int32 (E_p,) types.
        edge, places: with weight (K, F), rows (E_p, K) of edges' features, and int32 or int64 (E,), which of them each
            edge of a block has.
    """

    heads: int
    attention: torch.Tensor | None = None
    slope: float = 0.0
    dropout: Dropout | None = None
    mixed: bool = False
    weight: torch.Tensor | None = None
    edge: torch.Tensor | None = None
    places: torch.Tensor | None = None

    @property
    def _bases(self) -> int:
        assert self.weight is not None, "mixed rows have coefficients"
        return self.weight.shape[1]

    def width(self, source: torch.Tensor) -> int:
        """F, from sources' rows."""
        if self.mixed:
            return source.shape[1] // self._bases - self.heads
        return source.shape[1] // (2 if self.attention is None else 1)

    def given(self, source: torch.Tensor) -> dict[str, Any]:
        """The arguments that both directions have, from sources' rows."""
        heads, width = self.heads, self.width(source)
        if width < 1 or width % heads:
            raise ValueError(f"source: expected a multiple of {heads} heads as width, got {tuple(source.shape)}")
        own_width, source_width = width, 2 * width if self.attention is None else width
        if self.mixed:
            own_width, source_width = self._bases * heads, self._bases * (width + heads)
        kind = "score_mixed" if self.mixed else "score_product" if self.attention is None else "score_sum"
        given = {"source": source, "attention": self.attention, "heads": heads, "slope": self.slope}
        given |= {"score": _SCORE[kind], "width": width, "head_width": width // heads}
        if self.weight is not None and not self.mixed:
            given["weight_columns"] = width
        given |= {"own_width": own_width, "source_width": source_width, **of_dropout(self.dropout)}
        if self.weight is None:
            return given
        if self.edge is None or self.places is None:
            raise ValueError("edge, places: expected torch tensors with weight, got None")
        given |= {"weight": self.weight.contiguous(), "types" if self.mixed else "edge": self.edge}
        return given | {"places": self.places, "place_bytes": self.places.element_size()}


def rules_rows(*matrices: torch.Tensor) -> bool:
    """Whether these kernels are there for these matrices."""
    return library.load().native is not None and all(each.dtype in (torch.float32, torch.float64) for each in matrices)
