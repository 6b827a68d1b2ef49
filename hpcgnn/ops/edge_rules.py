"""Rules of edges that kernels know, on the streams of the general rule (propagate.py).

* Attention whose scores are made of whole rows (GATv2, transformers, RGAT) does what `Propagation` does for a message
  function and the softmax reducer. Dropout draws the same. Saved are the rows, y, and two numbers per row and head.
* Messages that are a source's row with a map of the edge's features (GINE, PNA) do what it does for such a message
  function. Saved are the rows, and of moments y with its counts.

The same rows travel, and the same rows return. But a block's edges are one call of a kernel, so Python makes nothing
for each tile, and nothing per edge is kept but for a wave of edges. The data of edges are read where they are.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

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


@dataclass(frozen=True)
class _ScoredAttention:
    general: Propagation
    rule: Rule
    scores: RowScores

    def of_part(self, scores: RowScores, part: Part[Block]) -> RowScores:
        """The scores of a part's edges."""
        ids = self.general.ids, self.general.column_ids(part.block, len(part.rows))
        dropout = (self.rule.p, self.rule.key, *ids) if self.rule.p else None
        return replace(scores.at(part.block.edge), dropout=dropout)

    def forward(
        self, x_src: torch.Tensor, x_dst: torch.Tensor, attention: torch.Tensor | None, weight: torch.Tensor | None
    ) -> tuple[torch.Tensor, Gradients]:
        """See `differentiable`. Kept are all, y, and the maximum and the inverse of the denominator (n_p, H)."""
        n, scores = len(x_dst), replace(self.scores, attention=attention, weight=weight)
        y = x_dst.new_zeros(n, scores.width(x_src))
        top, total = y.new_full((n, scores.heads), -torch.inf), y.new_zeros(n, scores.heads)
        for part in self.general.stream(Rows(x_src, draw=self.general.seed(self.rule)), "halo_forward"):
            block, of_part = part.block, self.of_part(scores, part)
            kernels.score_forward(of_part, (y, top, total), x_dst, part.rows, block.indptr, block.indices, block.rows)
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
        (y, top, share), gy = made, gy.contiguous()
        returns = None if g_src is None else Returns(g_src)
        for part in self.general.stream(Rows(x_src, draw=self.general.seed(self.rule)), "halo_backward", returns):
            block = part.block
            kernels.score_backward(
                self.of_part(scores, part),
                (g_dst, part.back, g_attention, g_weight),
                (x_dst, gy, y, top, share),
                part.rows,
                indptr=block.indptr,
                indices=block.indices,
                rows=block.rows,
                returns=block.returns,
            )
        return g_src, g_dst, g_attention, g_weight


def reduce_messages(general: Propagation, rule: Rule, messages: RowMessages, x: torch.Tensor) -> torch.Tensor:
    """y (n_p, F), or of moments (n_p, 4 F), differentiably, from own rows x (n_p, F). rule: its message function is
    not called. Collective in both directions.
    """
    return differentiable(_RowReduction(general, rule, messages), x.contiguous(), messages.weight, messages.bias)


@dataclass(frozen=True)
class _RowReduction:
    general: Propagation
    rule: Rule
    messages: RowMessages

    def forward(
        self, x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None
    ) -> tuple[torch.Tensor, Gradients]:
        """See `differentiable`. Kept are all, y, and of moments (n, 2 F) how many messages are the largest and the
        least, (n,) how many there are.
        """
        (n, width), messages = x.shape, self.messages
        y, numbers = x.new_zeros(n, messages.columns * width), None
        if messages.moments:
            numbers = x.new_zeros(n, 2 * width), torch.zeros(n, dtype=torch.int64)
            y[:, width : 2 * width], y[:, 2 * width : 3 * width] = -torch.inf, torch.inf
        for block, rows, *_ in self.general.stream(Rows(x, draw=self.general.seed(self.rule)), "halo_forward"):
            kernels.message_forward(messages.at(block.edge), y, numbers, rows, block.indptr, block.indices, block.rows)
        if numbers is not None:
            empty = (numbers[1] == 0).unsqueeze(1)
            y[:, width : 3 * width].masked_fill_(empty, 0)
            spread = y[:, 3 * width :].div_(numbers[1].clamp(min=1).unsqueeze(1)).add_(Std.epsilon).sqrt_()
            spread.masked_fill_(empty, 0)
        return y, (x, weight, bias, y, *(numbers or ()))

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
        returns = None if g_x is None else Returns(g_x)
        for part in self.general.stream(Rows(x, draw=self.general.seed(self.rule)), "halo_backward", returns):
            block = part.block
            kernels.message_backward(
                self.messages.at(block.edge),
                (part.back, g_map),
                (y, gradient),
                part.rows,
                indptr=block.indptr,
                indices=block.indices,
                rows=block.rows,
                returns=block.returns,
            )
        of_weight = None if g_map is None or weight is None else g_map[:-1]
        return g_x, of_weight, None if g_map is None or bias is None else g_map[-1]


def _of_messages(gy: torch.Tensor, y: torch.Tensor, numbers: Sequence[torch.Tensor]) -> torch.Tensor:
    """What gives moments' messages their gradient (kernels/messages.py), from the gradient of y (n, 4 F)."""
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
