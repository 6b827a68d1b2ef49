"""Attention whose scores are made of whole rows (GATv2, transformers): kernels on the streams of the general rule.

It does what `Propagation` does for a message function and the softmax reducer. The same rows travel, the same rows
return, and dropout draws the same. But a block's edges are one call of a kernel. So Python makes nothing for each tile,
and nothing per edge is kept but for a wave of edges. Saved are the rows, y, and two numbers per row and head.
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
        """y (n_p, F), differentiably, from own rows x_dst (n_p, F) and x_src (n_p, F), or (n_p, 2F) without attention
        vectors. rule: its message function is not called.
        """
        rule = replace(rule, seed=kernels.stream_key(rule.seed, self.stream.comm.rank))  # as of Propagation
        attention = None if scores.attention is None else scores.attention.reshape(-1)
        return _Scored.apply(self, rule, scores, x_src.contiguous(), x_dst.contiguous(), attention)

    def of_block(
        self, rule: Rule, scores: RowScores, attention: torch.Tensor | None, block: Block, columns: int
    ) -> RowScores:
        """The scores of a block with so many columns."""
        dropout = (rule.p, rule.key, self._ids, self._column_ids(block, columns)) if rule.p else None
        return replace(scores, attention=attention, dropout=dropout)

    def forward(
        self, rule: Rule, scores: RowScores, x_src: torch.Tensor, x_dst: torch.Tensor, attention: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(y (n_p, F), the maximum and the inverse of the denominator (n_p, H))."""
        y, n = torch.zeros_like(x_dst), len(x_dst)
        top, total = y.new_full((n, scores.heads), -torch.inf), y.new_zeros(n, scores.heads)
        for block, rows, _, _ in self.stream(Rows(x_src, draw=rule.seed), "halo_forward"):
            of_block = self.of_block(rule, scores, attention, block, len(rows))
            kernels.score_forward(of_block, (y, top, total), x_dst, rows, block.indptr, block.indices, block.rows)
        share = torch.empty_like(total)
        kernels.attend_finish(y, top, total, top, None, share)
        return y, top, share

    def backward(
        self, rule: Rule, scores: RowScores, gy: torch.Tensor, saved: tuple[Any, ...], returning: bool
    ) -> list[torch.Tensor | None]:
        """Gradients of x_src, if it is `returning`, x_dst and attention. saved: these, and what `forward` gives."""
        x_src, x_dst, attention, *made = saved
        g_src, g_dst = torch.zeros_like(x_src) if returning else None, torch.zeros_like(x_dst)
        g_attention = None if attention is None else torch.zeros_like(attention)
        returns = None if g_src is None else Returns(g_src)
        for block, rows, _, back in self.stream(Rows(x_src, draw=rule.seed), "halo_backward", returns):
            kernels.score_backward(
                self.of_block(rule, scores, attention, block, len(rows)),
                (g_dst, back, g_attention),
                (x_dst, gy, *made),
                rows,
                block.indptr,
                block.indices,
                block.rows,
                block.returns,
            )
        return [g_src, g_dst, g_attention]


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
    ) -> torch.Tensor:
        y, top, share = operator.forward(rule, scores, x_src, x_dst, attention)
        ctx.save_for_backward(x_src, x_dst, attention, y, top, share)
        ctx.settings = operator, rule, replace(scores, attention=None)
        return y

    @staticmethod
    def backward(ctx: Any, gy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        operator, rule, scores = ctx.settings
        found = operator.backward(rule, scores, gy.contiguous(), ctx.saved_tensors, ctx.needs_input_grad[3])
        return None, None, None, *found
