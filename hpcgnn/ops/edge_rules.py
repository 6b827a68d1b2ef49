"""Rules of edges that kernels know, on the streams of the general rule (propagate.py).

* Attention whose scores are made of whole rows (GATv2, transformers, RGAT) does what `Propagation` does for a message
  function and the softmax reducer. Dropout draws the same. Saved are the rows, y, and two numbers per row and head.
  A block's edges are one call of a kernel, which reads the data of edges where they are.
* Messages of GINE and PNA are a source's row with a map of the edge's features. Kernels make them and their gradients
  tile by tile, in half of autograd's time.

The same rows travel, and the same rows return.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from hpcgnn import kernels
from hpcgnn.exchange.stream import Returns, StreamInput, StreamPart
from hpcgnn.graph.blocks import Block
from hpcgnn.graph.edge_tiles import EdgeTile
from hpcgnn.kernels import RowScores
from hpcgnn.ops.operator_context import differentiable
from hpcgnn.ops.propagate import Call, Propagation, Rule
from hpcgnn.ops.row_tiles import in_rows, picked

#: Gradients, of those that are wanted.
Gradients = tuple[torch.Tensor | None, ...]


def attend_by_scores(
    general: Propagation, rule: Rule, scores: RowScores, x_src: torch.Tensor, x_dst: torch.Tensor
) -> torch.Tensor:
    """y (n_p, F), differentiably, from own rows x_dst and x_src, whose widths `RowScores` tells. rule: its message
    function is not called. Collective in both directions.
    """
    attention = None if scores.attention is None else scores.attention.reshape(-1)
    operator = _ScoredAttention(general, rule, replace(scores, attention=None, weight=None))
    return differentiable(operator, in_rows(x_src), in_rows(x_dst), attention, scores.weight)


@dataclass(frozen=True)
class _ScoredAttention:
    """A call of the general operator, whose streams serve."""

    general: Propagation
    rule: Rule
    scores: RowScores

    def parts(
        self, x: torch.Tensor, kind: str, sums: torch.Tensor | None = None, *, interior: bool = False
    ) -> Iterator[StreamPart[Block]]:
        """The blocks with their rows of x. sums: where returned gradients are added, or None. interior: as in
        StreamInput.
        """
        given = StreamInput(x, draw=self.general.seed(self.rule), interior=interior)
        return self.general.stream(given, kind, None if sums is None else Returns(sums))

    def given(self, scores: RowScores, part: StreamPart[Block]) -> dict[str, Any]:
        """The kernels' arguments of a part's edges."""
        ids = self.general.ids[part.at], self.general.column_ids(part.block, len(part.rows))
        dropout = (self.rule.p, self.rule.key, *ids) if self.rule.p else None
        return replace(scores, places=part.block.edge, dropout=dropout).given(part.rows) | part.block.structure

    def forward(
        self, x_src: torch.Tensor, x_dst: torch.Tensor, attention: torch.Tensor | None, weight: torch.Tensor | None
    ) -> tuple[torch.Tensor, Gradients]:
        """See `differentiable`. Kept are all, y, and the maximum and the inverse of the denominator (n_p, H)."""
        n, scores = len(x_dst), replace(self.scores, attention=attention, weight=weight)
        empty = partial(self.general.arena.empty, dtype=x_dst.dtype)
        y, top, share = empty(n, scores.width(x_src)), empty(n, scores.heads), empty(n, scores.heads)
        outer = slice(0, self.general.stream.edges.first_interior)
        unfinished = y[outer], top[outer], share[outer]  # the edges of other rows come together
        if outer.stop:
            kernels.attend_begin(*unfinished)
        for part in self.parts(x_src, "halo_forward", interior=True):
            sums: dict[str, Any] = {"y": y[part.at], "running_max": top[part.at], "denominator": share[part.at]}
            kernels.score_forward(x=x_dst[part.at], complete=part.complete, **sums, **self.given(scores, part))
        if outer.stop:
            kernels.attend_finish(*unfinished, top[outer], None, share[outer])
        return y, (x_src, x_dst, attention, weight, y, top, share)

    def backward(
        self,
        gy: torch.Tensor,
        wanted: Sequence[bool],
        x_src: torch.Tensor,
        x_dst: torch.Tensor,
        attention: torch.Tensor | None,
        weight: torch.Tensor | None,
        *made: torch.Tensor,
    ) -> Gradients:
        """See `differentiable`."""
        scores = replace(self.scores, attention=attention, weight=weight)
        like = self.general.arena.empty_like
        g_src, g_dst = like(x_src).zero_() if wanted[0] else None, like(x_dst)
        g_dst[: self.general.stream.edges.first_interior].zero_()
        g_attention, g_weight = (
            None if each is None else torch.zeros_like(each, memory_format=torch.contiguous_format)
            for each in (attention, weight)
        )
        own: dict[str, Any] = dict(zip(("y", "top", "share"), made, strict=True))
        own |= {"x": x_dst, "gy": gy.contiguous(), "g_x": g_dst}
        for part in self.parts(x_src, "halo_backward", g_src, interior=True):
            given = {name: rows[part.at] for name, rows in own.items()} | self.given(scores, part)
            given |= {"g_source": part.back, "returns": part.block.returns, "complete": part.complete}
            kernels.score_backward(g_attention=g_attention, g_weight=g_weight, **given)
        return g_src, g_dst, g_attention, g_weight


@dataclass(frozen=True)
class RowMessages:
    """Messages z + e W + b of a source's row z and an edge's features e, and ReLU of them if `relu`.

    Attributes:
        weight, bias: W (K, F) and b (F,), or None.
    """

    weight: torch.Tensor | None = None
    bias: torch.Tensor | None = None
    relu: bool = False


def reduce_messages(
    general: Propagation, rule: Rule, messages: RowMessages, x: torch.Tensor, edge: torch.Tensor | None
) -> torch.Tensor:
    """y (n_p, F) of each reducer, differentiably, from own rows x (n_p, F). edge: (E_p, K), without a gradient.

    rule: its message function is not called. Collective in both directions.
    """
    call = _RowReduction(general, rule, rule.reducer(general.arena, len(x), x[:0]), messages.relu)
    return differentiable(call, x.contiguous(), None, edge, messages.weight, messages.bias)


@dataclass(frozen=True)
class _RowReduction(Call):
    """A tile's messages and their gradients by kernels, in place of autograd."""

    relu: bool

    def message(self, tile: EdgeTile, part: StreamPart[Block], tensors: Sequence[torch.Tensor | None]) -> torch.Tensor:
        made, (_, _, edge, weight, bias) = picked(part.rows, tile.sources), tensors
        if bias is not None:
            made += bias
        if weight is not None and edge is not None:
            kernels.multiply(made, edge[tile.at], weight, add=True)
        return made.relu_() if self.relu else made

    def add_gradients(
        self,
        tile: EdgeTile,
        part: StreamPart[Block],
        tensors: Sequence[torch.Tensor | None],
        sums: Sequence[torch.Tensor | None],
    ) -> None:
        made: Any = self.message(tile, part, tensors)
        gradient: Any = self.reducer.gradient(tile, made)
        _, _, edge, weight, _ = tensors
        if self.relu:
            kernels.relu_gradient(gradient, gradient, made)
        if sums[3] is not None and weight is not None and edge is not None:
            kernels.project_backward(None, sums[3], edge[tile.at], gradient, weight)
        if sums[4] is not None:
            kernels.bias_gradient(sums[4], gradient)
        if part.back is not None:
            returns = part.block.returns
            kernels.add_rows(part.back, tile.sources if returns is None else returns[tile.first : tile.last], gradient)
