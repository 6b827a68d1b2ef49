"""Rules of edges that are made of whole rows, over blocks of the adjacency: scores of attention (GATv2, transformers,
relational attention), and messages (GINE, PNA).

S. Brody et al., "How Attentive are Graph Attention Networks?", ICLR 2022; Y. Shi et al., "Masked Label Prediction",
IJCAI 2021. The softmax is formed online as in attention.py: `score_forward` once per block, then `attend_finish`. A
message is a source's row with a map of the edge's features, m_e = z_j + e_e W + b, and ReLU of it if asked for.

All gradients are formed at the owner of the destinations, in a call for each block, and a row returns to each source.
Scores, weights and messages exist for a few edges at a time only, or for a wave of edges where there are several
threads. The data of edges (native/attention_edges.h) are features that a map adds to the sources' rows, or the type,
whose coefficients mix the rows of bases. No result depends on the number of threads, bit for bit. Ranges of indices are
not checked (see `check_block`).

Only the compiled library has these kernels (`rules_rows`). Without it the general rule (ops/propagate.py) does the
same, with the same draws of dropout.
"""

from dataclasses import dataclass, replace
from typing import Any, Self

import torch

from . import library
from .aggregation import ALL_ROWS, BLOCK, ROWS
from .attention import DROPPED, NO_MEMORY, OWN_COLUMNS, Dropout, of_dropout
from .interface import codes
from .kernel import kernel

_SCORE = codes("score_sum", "score_product", "score_mixed")
_REDUCE = codes("reduce_sum", "reduce_moments")
#: Of both rules; a table's first argument has the dtype of all.
_EDGES = {
    **BLOCK,
    "rows": ROWS,
    "places": "optional index [edges]",
}
#: `own_width` and so on are sizes of `RowScores.given`. Of mixed rows an edge has a type.
_SCORES = _EDGES | {
    "source": "type of x as streamed (columns, source_width)",
    "attention": "optional type of x [width]",
    "weight": "optional contiguous type of x (weight_rows, weight_columns)",
    "edge": "optional type of x (all_edges, weight_rows)",
    "types": "optional int32 as edge [all_edges]",
    **DROPPED,
}
_MESSAGES = _EDGES | {
    "x": "type of y (columns, width)",
    "weight": "optional contiguous type of y (depth, width)",
    "bias": "optional type of y [width]",
    "edge": "optional type of y (all_edges, depth)",
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
#: share are of `attend_finish`. returns: the row of g_source that each edge adds to, in place of its column.
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
#: Takes the edges of one block into the results of the rows it stores. y: (n, F), or (n, 4 F) of moments; before the
#: first block 0, but -inf for the largest and inf for the least. Of moments, 0 before the first block: counts (n, 2 F),
#: how many edges have the largest and the least, and numbers, how many there are.
message_forward = kernel(
    "hg_message_forward",
    {
        "y": "written float (n, times * width)",
        "counts": "optional written type of y (n, 2 * width)",
        "numbers": "optional written int64 [n]",
    }
    | _MESSAGES,
    without=ALL_ROWS,
    memory=NO_MEMORY,
)(None)
#: Adds the gradients that come over the edges of one block. `gradient` is of the messages of a row: g of a sum, and
#: [of mean | of largest | of least | of distances] of moments, where a message has g_mean + (m == largest) g_largest +
#: (m == least) g_least + (m - mean) g_distances. g_map is of weight and, in its last row, of bias. Only moments read y.
message_backward = kernel(
    "hg_message_backward",
    {
        "y": "float (n, times * width)",
        "gradient": "type of y (n, times * width)",
        "g_x": "optional written type of y as back (returned, width)",
        "g_map": "optional written contiguous type of y (depth + 1, width)",
        "returns": "optional int32 [edges]",
    }
    | _MESSAGES,
    without=(*ALL_ROWS, OWN_COLUMNS),
    memory=NO_MEMORY,
)(None)


@dataclass(frozen=True, kw_only=True)
class _EdgeData:
    """weight: a map (K, F) of the edges' features, or None. With it `edge`, their rows (E_p, K), and `places`, int32 or
    int64 (E,), the row in `edge` of each edge of the block.
    """

    weight: torch.Tensor | None = None
    edge: torch.Tensor | None = None
    places: torch.Tensor | None = None

    def at(self, places: torch.Tensor | None) -> Self:
        """The same for the edges of a block."""
        return self if self.weight is None else replace(self, places=places)

    def _of_edges(self, name: str = "edge") -> dict[str, Any]:
        if self.weight is None:
            return {}
        if self.edge is None or self.places is None:
            raise ValueError("edge, places: expected torch tensors with weight, got None")
        given = {"weight": self.weight.contiguous(), name: self.edge, "places": self.places}
        return given | {"place_bytes": self.places.element_size()}


@dataclass(frozen=True)
class RowScores(_EdgeData):
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
    """

    heads: int
    attention: torch.Tensor | None = None
    slope: float = 0.0
    dropout: Dropout | None = None
    mixed: bool = False

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
        return given | self._of_edges("types" if self.mixed else "edge")


@dataclass(frozen=True)
class RowMessages(_EdgeData):
    """How messages are made, and what they are reduced to.

    Attributes:
        moments: whether the result of a row is [mean | largest | least | squared distances from the mean] of its
            messages, (4 F); else their sum, (F).
        relu: whether a message is cut off at 0.
        bias: (F,) or None.
    """

    moments: bool = False
    relu: bool = False
    bias: torch.Tensor | None = None

    @property
    def columns(self) -> int:
        """How many columns a result has for each column of a message."""
        return 4 if self.moments else 1

    def given(self, x: torch.Tensor) -> dict[str, Any]:
        """The arguments that both directions have, from sources' rows."""
        reduce = _REDUCE["reduce_moments" if self.moments else "reduce_sum"]
        given = {"x": x, "bias": self.bias, "width": x.shape[-1], "times": self.columns, "relu": self.relu}
        given |= {"reduce": reduce, "depth": 0 if self.weight is None else len(self.weight)}
        return given | self._of_edges()


def rules_rows(*matrices: torch.Tensor) -> bool:
    """Whether these kernels are there for these matrices."""
    return library.load().native is not None and all(each.dtype in (torch.float32, torch.float64) for each in matrices)
