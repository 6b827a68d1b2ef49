"""Cross-entropy over some rows of the logits. Its gradient is made with the loss, so that nothing else is kept."""

from typing import Any

import torch

from hpcgnn import kernels
from hpcgnn.memory.arena import Arena
from hpcgnn.ops.row_tiles import in_rows


def cross_entropy(logits: torch.Tensor, rows: torch.Tensor | None, labels: torch.Tensor, arena: Arena) -> torch.Tensor:
    """Σ over `rows` of −log softmax(logits)[label]: a scalar, differentiable in logits (n, C).

    rows: int64 (m,), increasing, or None for all; labels: int64 (m,).
    """
    wide = logits if logits.dtype in (torch.float32, torch.float64) else logits.float()
    return _Loss.apply(wide, rows, labels, arena).to(logits.dtype)


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, logits: torch.Tensor, rows: torch.Tensor | None, labels: torch.Tensor, arena: Arena
    ) -> torch.Tensor:
        ctx.gradient = None
        if ctx.needs_input_grad[0]:
            ctx.gradient = arena.empty_streamed(len(logits), logits.shape[1], logits.dtype)
            if rows is not None:
                ctx.gradient.zero_()
        return logits.new_tensor(kernels.cross_entropy(ctx.gradient, in_rows(logits), rows, labels))

    @staticmethod
    def backward(ctx: Any, g_loss: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        gradient, ctx.gradient = ctx.gradient, None
        return gradient.mul_(g_loss), None, None, None
