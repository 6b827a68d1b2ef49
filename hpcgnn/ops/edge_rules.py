"""Rules of edges that kernels know, on the streams of the general rule (propagate.py).

* Attention whose scores are made of whole rows (GATv2, transformers, RGAT) does what `Propagation` does for a message
  function and the softmax reducer. Dropout draws the same. Saved are the rows, y, and two numbers per row and head.
* Messages that are a source's row with a map of the edge's features (GINE, PNA) do what it does for such a message
  function. Saved are the rows, and of moments y with its counts.

The same rows travel, and the same rows return. But a block's edges are one call of a kernel. So Python makes nothing
for each tile, and nothing per edge is kept but for a wave of edges. The data of edges are read where they are.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from hpcgnn import kernels
from hpcgnn.exchange.edges import Part
from hpcgnn.exchange.stream import Returns, Rows
from hpcgnn.graph.blocks import Block
from hpcgnn.kernels import RowMessages, RowScores
from hpcgnn.ops.propagate import Propagation, Rule
from hpcgnn.ops.reducers import Std
from hpcgnn.ops.site import differentiable

#: What moments are, in the order of their columns.
MOMENTS = ("mean", "max", "min", "std")
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
    return differentiable(operator, x_src.contiguous(), x_dst.contiguous(), attention, scores.weight)


def _of_block(block: Block) -> dict[str, torch.Tensor | None]:
    return {"indptr": block.indptr, "indices": block.indices, "rows": block.rows}


@dataclass(frozen=True)
class _ByRows:
    """What both rules have: the general operator, whose streams serve, and the call."""

    general: Propagation
    rule: Rule

    def parts(self, x: torch.Tensor, kind: str, sums: torch.Tensor | None = None) -> Iterator[Part[Block]]:
        """The blocks with their rows of x. sums: where returned gradients are added, or None."""
        returns = None if sums is None else Returns(sums)
        return self.general.stream(Rows(x, draw=self.general.seed(self.rule)), kind, returns)


@dataclass(frozen=True)
class _ScoredAttention(_ByRows):
    scores: RowScores

    def given(self, scores: RowScores, part: Part[Block]) -> dict[str, Any]:
        """The kernels' arguments of a part's edges."""
        ids = self.general.ids, self.general.column_ids(part.block, len(part.rows))
        dropout = (self.rule.p, self.rule.key, *ids) if self.rule.p else None
        return replace(scores.at(part.block.edge), dropout=dropout).given(part.rows) | _of_block(part.block)

    def forward(
        self, x_src: torch.Tensor, x_dst: torch.Tensor, attention: torch.Tensor | None, weight: torch.Tensor | None
    ) -> tuple[torch.Tensor, Gradients]:
        """See `differentiable`. Kept are all, y, and the maximum and the inverse of the denominator (n_p, H)."""
        n, scores = len(x_dst), replace(self.scores, attention=attention, weight=weight)
        y = x_dst.new_zeros(n, scores.width(x_src))
        top, total = y.new_full((n, scores.heads), -torch.inf), y.new_zeros(n, scores.heads)
        for part in self.parts(x_src, "halo_forward"):
            kernels.score_forward(x=x_dst, y=y, running_max=top, denominator=total, **self.given(scores, part))
        share = torch.empty_like(total)
        kernels.attend_finish(y, top, total, top, None, share)
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
        g_src, g_dst = torch.zeros_like(x_src) if wanted[0] else None, torch.zeros_like(x_dst)
        g_attention, g_weight = (
            None if each is None else torch.zeros_like(each, memory_format=torch.contiguous_format)
            for each in (attention, weight)
        )
        saved: dict[str, Any] = {
            "x": x_dst,
            "gy": gy.contiguous(),
            **dict(zip(("y", "top", "share"), made, strict=True)),
        }
        saved |= {"g_x": g_dst, "g_attention": g_attention, "g_weight": g_weight}
        for part in self.parts(x_src, "halo_backward", g_src):
            given = self.given(scores, part)
            kernels.score_backward(**saved, g_source=part.back, returns=part.block.returns, **given)
        return g_src, g_dst, g_attention, g_weight


def reduce_messages(general: Propagation, rule: Rule, messages: RowMessages, x: torch.Tensor) -> torch.Tensor:
    """y (n_p, F), or of moments (n_p, 4 F), differentiably, from own rows x (n_p, F). rule: its message function is
    not called. Collective in both directions.
    """
    return differentiable(_RowReduction(general, rule, messages), x.contiguous(), messages.weight, messages.bias)


@dataclass(frozen=True)
class _RowReduction(_ByRows):
    messages: RowMessages

    def given(self, part: Part[Block]) -> dict[str, Any]:
        """The kernels' arguments of a part's edges."""
        return self.messages.at(part.block.edge).given(part.rows) | _of_block(part.block)

    def forward(
        self, x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None
    ) -> tuple[torch.Tensor, Gradients]:
        """See `differentiable`. Kept are all, y, and of moments (n, 2 F) how many messages are the largest and the
        least, (n,) how many there are.
        """
        (n, width), messages = x.shape, self.messages
        y, counts, numbers = x.new_zeros(n, messages.columns * width), None, None
        if messages.moments:
            counts, numbers = x.new_zeros(n, 2 * width), torch.zeros(n, dtype=torch.int64)
            y[:, width : 2 * width], y[:, 2 * width : 3 * width] = -torch.inf, torch.inf
        for part in self.parts(x, "halo_forward"):
            kernels.message_forward(y=y, counts=counts, numbers=numbers, **self.given(part))
        if counts is None or numbers is None:
            return y, (x, weight, bias, y)
        empty = (numbers == 0).unsqueeze(1)
        y[:, width : 3 * width].masked_fill_(empty, 0)
        spread = y[:, 3 * width :].div_(numbers.clamp(min=1).unsqueeze(1)).add_(Std.epsilon).sqrt_()
        spread.masked_fill_(empty, 0)
        return y, (x, weight, bias, y, counts, numbers)

    def backward(
        self,
        gy: torch.Tensor,
        wanted: Sequence[bool],
        x: torch.Tensor,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
        y: torch.Tensor,
        *numbers: torch.Tensor,
    ) -> Gradients:
        """See `differentiable`."""
        gradient = _of_messages(gy, y, numbers) if numbers else gy.contiguous()
        g_x = torch.zeros_like(x) if wanted[0] else None
        # Of the edges' map and, in the last row, its bias.
        g_map = x.new_zeros((0 if weight is None else len(weight)) + 1, x.shape[1]) if any(wanted[1:]) else None
        for part in self.parts(x, "halo_backward", g_x):
            given = self.given(part) | {"g_x": part.back, "g_map": g_map, "returns": part.block.returns}
            kernels.message_backward(y=y, gradient=gradient, **given)
        of_weight = None if g_map is None or weight is None else g_map[:-1]
        return g_x, of_weight, None if g_map is None or bias is None else g_map[-1]


def _of_messages(gy: torch.Tensor, y: torch.Tensor, numbers: Sequence[torch.Tensor]) -> torch.Tensor:
    """What gives moments' messages their gradient (kernels/row_rules.py), from the gradient of y (n, 4 F)."""
    counts, edges = numbers
    width = counts.shape[1] // 2
    count = edges.clamp(min=1).unsqueeze(1)
    out = torch.empty_like(y)
    torch.div(gy[:, :width], count, out=out[:, :width])
    torch.div(gy[:, width : 3 * width], counts.clamp(min=1), out=out[:, width : 3 * width])
    spread = out[:, 3 * width :]
    torch.mul(y[:, 3 * width :], count, out=spread)
    spread.masked_fill_((edges == 0).unsqueeze(1), torch.inf)
    torch.div(gy[:, 3 * width :], spread, out=spread)
    return out
