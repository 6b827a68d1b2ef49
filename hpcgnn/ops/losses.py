"""Cross-entropy over some rows of the logits. Its gradient is made with the loss, so that nothing else is kept.

The plain loss is a kernel. With smoothed labels and weights of classes, as torch defines it, it needs all logarithms of
a row, not only its label's.
"""

from collections.abc import Callable
from typing import Any

import torch

from hpcgnn import kernels
from hpcgnn.memory.arena import Arena
from hpcgnn.ops.row_tiles import in_rows, row_tiles

#: loss(logits, where to write the gradient or None) -> the sum over rows.
Loss = Callable[[torch.Tensor, torch.Tensor | None], float]


def cross_entropy(logits: torch.Tensor, rows: torch.Tensor | None, labels: torch.Tensor, arena: Arena) -> torch.Tensor:
    """Σ over `rows` of −log softmax(logits)[label]: a scalar, differentiable in logits (n, C).

    rows: int64 (m,), increasing, or None for all; labels: int64 (m,).
    """

    def loss(wide: torch.Tensor, gradient: torch.Tensor | None) -> float:
        return kernels.cross_entropy(gradient, wide, rows, labels)

    return _Loss.apply(_wide(logits), loss, rows is not None, arena).to(logits.dtype)


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
    ones = torch.ones(logits.shape[1], dtype=torch.float64) if weights is None else weights

    def loss(wide: torch.Tensor, gradient: torch.Tensor | None) -> float:
        own, spread = ((1 - smoothing) * ones).to(wide.dtype), (smoothing / len(ones) * ones).to(wide.dtype)
        total = torch.zeros((), dtype=torch.float64)
        for tile in row_tiles(len(labels)):
            where = torch.arange(tile.start, tile.stop) if rows is None else rows[tile]
            label = labels[tile, None]
            powers, of_label = wide.index_select(0, where).log_softmax(1), own[label]
            of_labels = (powers.gather(1, label) * of_label).sum(dtype=torch.float64)
            total -= of_labels + (powers * spread).sum(dtype=torch.float64)
            if gradient is not None:
                slope = powers.exp_().mul_(of_label + spread.sum()).sub_(spread).scatter_add_(1, label, -of_label)
                gradient.index_copy_(0, where, slope)
        return float(total)

    return _Loss.apply(_wide(logits), loss, rows is not None, arena).to(logits.dtype)


def _wide(logits: torch.Tensor) -> torch.Tensor:
    return logits if logits.dtype in (torch.float32, torch.float64) else logits.float()


class _Loss(torch.autograd.Function):
    """loss(logits, gradient or None), which writes the gradient of some rows, or of all."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, loss: Loss, some: bool, arena: Arena) -> torch.Tensor:
        ctx.gradient = None
        if ctx.needs_input_grad[0]:
            ctx.gradient = arena.empty_streamed(len(logits), logits.shape[1], logits.dtype)
            if some:
                ctx.gradient.zero_()
        return logits.new_tensor(loss(in_rows(logits), ctx.gradient))

    @staticmethod
    def backward(ctx: Any, g_loss: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        gradient, ctx.gradient = ctx.gradient, None
        return gradient.mul_(g_loss), None, None, None
