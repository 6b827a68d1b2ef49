"""Attention whose scores are made of whole rows (GATv2, transformers, RGAT): kernels on the streams of the general
rule.

It does what `Propagation` does for a message function and the softmax reducer. The same rows travel, the same rows
return, and dropout draws the same. But a block's edges are one call of a kernel. So Python makes nothing for each tile,
and nothing per edge is kept but for a wave of edges. Saved are the rows, y, and two numbers per row and head. The data
of edges are read where they are, and get no gradient.
"""

from dataclasses import replace
from typing import Any

import torch

from hpcgnn import kernels
from hpcgnn.exchange.stream import Returns, Rows
from hpcgnn.graph.blocks import Block
from hpcgnn.kernels import RowScores
from hpcgnn.ops.propagate import Propagation, Rule


class ScoredAttention:
    """The operator of a rank, on what a Propagation has. Collective in both directions."""

    def __init__(self, general: Propagation) -> None:
        self.stream, self._column_ids, self._ids = general.stream, general.column_ids, general.ids

    def __call__(self, rule: Rule, scores: RowScores, x_src: torch.Tensor, x_dst: torch.Tensor) -> torch.Tensor:
        """y (n_p, F), differentiably, from own rows x_dst and x_src, whose widths `RowScores` tells. rule: its message
        function is not called.
        """
        rule = replace(rule, seed=kernels.stream_key(rule.seed, self.stream.comm.rank))  # as of Propagation
        attention = None if scores.attention is None else scores.attention.reshape(-1)
        return _Scored.apply(self, rule, scores, x_src.contiguous(), x_dst.contiguous(), attention, scores.weight)

    def of_block(self, rule: Rule, scores: RowScores, block: Block, columns: int) -> RowScores:
        """The scores of a block with so many columns."""
        dropout = (rule.p, rule.key, self._ids, self._column_ids(block, columns)) if rule.p else None
        return replace(scores.at(block.edge), dropout=dropout)

    def forward(
        self, rule: Rule, scores: RowScores, x_src: torch.Tensor, x_dst: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(y (n_p, F), the maximum and the inverse of the denominator (n_p, H))."""
        n = len(x_dst)
        y = x_dst.new_zeros(n, scores.width(x_src))
        top, total = y.new_full((n, scores.heads), -torch.inf), y.new_zeros(n, scores.heads)
        for block, rows, _, _ in self.stream(Rows(x_src, draw=rule.seed), "halo_forward"):
            of_block = self.of_block(rule, scores, block, len(rows))
            kernels.score_forward(of_block, (y, top, total), x_dst, rows, block.indptr, block.indices, block.rows)
        share = torch.empty_like(total)
        kernels.attend_finish(y, top, total, top, None, share)
        return y, top, share

    def backward(
        self, rule: Rule, scores: RowScores, gy: torch.Tensor, saved: tuple[Any, ...], returning: bool
    ) -> list[torch.Tensor | None]:
        """Gradients of x_src, if it is `returning`, x_dst, attention and weight. saved: the first two, and what
        `forward` gives.
        """
        x_src, x_dst, *made = saved
        g_src, g_dst = torch.zeros_like(x_src) if returning else None, torch.zeros_like(x_dst)
        g_attention, g_weight = (
            None if each is None else torch.zeros_like(each, memory_format=torch.contiguous_format)
            for each in (scores.attention, scores.weight)
        )
        returns = None if g_src is None else Returns(g_src)
        for block, rows, _, back in self.stream(Rows(x_src, draw=rule.seed), "halo_backward", returns):
            kernels.score_backward(
                self.of_block(rule, scores, block, len(rows)),
                (g_dst, back, g_attention, g_weight),
                (x_dst, gy, *made),
                rows,
                indptr=block.indptr,
                indices=block.indices,
                rows=block.rows,
                returns=block.returns,
            )
        return [g_src, g_dst, g_attention, g_weight]


class _Scored(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        operator: ScoredAttention,
        rule: Rule,
        scores: RowScores,
        x_src: torch.Tensor,
        x_dst: torch.Tensor,
        attention: torch.Tensor | None,
        weight: torch.Tensor | None,
    ) -> torch.Tensor:
        scores = replace(scores, attention=attention, weight=weight)
        y, top, share = operator.forward(rule, scores, x_src, x_dst)
        ctx.save_for_backward(x_src, x_dst, attention, weight, y, top, share)
        ctx.settings = operator, rule, replace(scores, attention=None, weight=None)
        return y

    @staticmethod
    def backward(ctx: Any, gy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        operator, rule, scores = ctx.settings
        x_src, x_dst, attention, weight, *made = ctx.saved_tensors
        scores = replace(scores, attention=attention, weight=weight)
        found = operator.backward(rule, scores, gy.contiguous(), (x_src, x_dst, *made), ctx.needs_input_grad[3])
        return None, None, None, *found
