"""Cross-entropy over some rows of the logits, whose gradient is made with the loss, so that nothing else is kept."""

import torch

from hpcgnn.ops.room import row_tiles, tile_rows


def cross_entropy(logits, rows, labels, arena):
    """Σ over `rows` of −log softmax(logits)[label]: a scalar, differentiable in logits (n, C).

    rows: int64 (m,), increasing, or None for all; labels: int64 (m,).
    """
    return _CrossEntropy.apply(logits, rows, labels, arena)


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, rows, labels, arena):
        gradient = arena.empty_like(logits) if ctx.needs_input_grad[0] else None
        if gradient is not None and rows is not None:
            gradient.zero_()
        total = logits.new_zeros((), dtype=torch.float64)
        spares = [
            arena.empty(min(tile_rows(), len(labels)), logits.shape[1], dtype=logits.dtype)
            for _ in range(1 if rows is None else 2)
        ]
        for tile in row_tiles(len(labels)):
            taken, label = tile if rows is None else rows[tile], labels[tile].unsqueeze(1)
            log_p, *chosen = (spare[: len(label)] for spare in spares)
            part = torch.index_select(logits, 0, taken, out=chosen[0]) if chosen else logits[tile]
            torch.log_softmax(part, 1, out=log_p)
            total -= log_p.gather(1, label).sum(dtype=torch.float64)
            if gradient is not None:
                p = log_p.exp_()
                p.scatter_add_(1, label, p.new_full(label.shape, -1))
                gradient[taken] = p
        ctx.gradient = gradient
        return total.to(logits.dtype)

    @staticmethod
    def backward(ctx, g_loss):
        gradient, ctx.gradient = ctx.gradient, None
        return gradient.mul_(g_loss), None, None, None
