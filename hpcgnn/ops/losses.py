"""Cross-entropy over some rows of the logits. Its gradient is made with the loss, so that nothing else is kept.

The plain loss is a kernel. With smoothed labels and weights of classes, as torch defines it, it needs all logarithms of
a row, not only its label's.
"""

from typing import Any

import torch

from hpcgnn import kernels
from hpcgnn.memory.arena import Arena
from hpcgnn.ops.row_tiles import in_rows, row_tiles


def cross_entropy(logits: torch.Tensor, rows: torch.Tensor | None, labels: torch.Tensor, arena: Arena) -> torch.Tensor:
    """Σ over `rows` of −log softmax(logits)[label]: a scalar, differentiable in logits (n, C).

    rows: int64 (m,), increasing, or None for all; labels: int64 (m,).
    """
    wide = logits if logits.dtype in (torch.float32, torch.float64) else logits.float()
    return _CrossEntropy.apply(wide, rows, labels, arena).to(logits.dtype)


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, logits: torch.Tensor, rows: torch.Tensor | None, labels: torch.Tensor, arena: Arena
    ) -> torch.Tensor:
        logits, ctx.gradient = in_rows(logits), None
        if not ctx.needs_input_grad[0]:
            return logits.new_tensor(kernels.cross_entropy(None, logits, rows, labels))
        ctx.gradient = arena.empty_streamed(len(logits), logits.shape[1], logits.dtype)
        if rows is not None:
            ctx.gradient.zero_()
        return logits.new_tensor(kernels.cross_entropy(ctx.gradient, logits, rows, labels))

    @staticmethod
    def backward(ctx: Any, g_loss: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        gradient, ctx.gradient = ctx.gradient, None
        return gradient.mul_(g_loss), None, None, None


def soft_cross_entropy(
    logits: torch.Tensor,
    rows: torch.Tensor | None,
    labels: torch.Tensor,
    smoothing: float,
    weights: torch.Tensor | None,
    arena: Arena,
) -> torch.Tensor:
    """Σ over `rows` of −(1 − ε) w_y log p_y − (ε / C) Σ_c w_c log p_c with p = softmax(logits), y the label and
    ε = smoothing in [0, 1): a scalar, differentiable in logits (n, C).

    rows: int64 (m,), all different, or None for all; labels: int64 (m,); weights w: float64 (C,), None for ones.
    """
    wide = logits if logits.dtype in (torch.float32, torch.float64) else logits.float()
    ones = torch.ones(logits.shape[1], dtype=torch.float64) if weights is None else weights
    own, spread = ((1 - smoothing) * ones).to(wide.dtype), (smoothing / len(ones) * ones).to(wide.dtype)
    return _SoftCrossEntropy.apply(wide, rows, labels, own, spread, arena).to(logits.dtype)


class _SoftCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        logits: torch.Tensor,
        rows: torch.Tensor | None,
        labels: torch.Tensor,
        own: torch.Tensor,
        spread: torch.Tensor,
        arena: Arena,
    ) -> torch.Tensor:
        gradient = arena.empty_streamed(len(logits), logits.shape[1], logits.dtype) if ctx.needs_input_grad[0] else None
        if gradient is not None and rows is not None:
            gradient.zero_()
        total = torch.zeros((), dtype=torch.float64)
        for tile in row_tiles(len(labels)):
            where = torch.arange(tile.start, tile.stop) if rows is None else rows[tile]
            label = labels[tile, None]
            powers = logits.index_select(0, where).log_softmax(1)
            of_label = own[label]
            total -= (powers.gather(1, label) * of_label).sum(dtype=torch.float64) + (powers * spread).sum(
                dtype=torch.float64
            )
            if gradient is not None:
                slope = powers.exp_().mul_(of_label + spread.sum()).sub_(spread).scatter_add_(1, label, -of_label)
                gradient.index_copy_(0, where, slope)
        ctx.gradient = gradient
        return total.to(logits.dtype)

    @staticmethod
    def backward(ctx: Any, g_loss: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        gradient, ctx.gradient = ctx.gradient, None
        return gradient.mul_(g_loss), None, None, None, None, None
