"""Batch normalisation with the statistics of all nodes of all ranks (Ioffe and Szegedy, ICML'15).

Mean and variance are taken in two passes, in float64: first the mean over all ranks, then the mean squared distance
from it. (The one-pass E[x²] − E[x]² loses every digit when the mean is large against the spread.)

A batch norm would subtract a bias of the layer before it together with the mean, so that the bias's gradient is pure
rounding. Adam turns such a gradient into steps of ±lr, and the running mean lags behind these steps. Validation then
depended on the number of ranks. So no layer of ours has a bias before a batch norm (`drop_bias`). Layers of plugins are
left as they are.

All work proceeds in tiles of rows. The forward pass saves its input. Only the output and the gradient of the input are
as large.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from hpcgnn.nn.graph import Graph
from hpcgnn.ops.row_tiles import row_tiles, tile_rows

# Rows that a thread sums at a time.
_SUMMED_BYTES = 1 << 20


class BatchNorm(nn.Module):
    """Normalise each column over all nodes of the graph. forward(graph, x (n_p, F)) -> (n_p, F). Collective in
    training.

    Evaluation uses running statistics: running ← (1 − momentum) · running + momentum · batch, unbiased variance, as
    torch does.
    """

    running_mean: torch.Tensor
    running_var: torch.Tensor

    def __init__(self, width: int, eps: float = 1e-5, momentum: float = 0.1, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.eps, self.momentum = eps, momentum
        self.weight = nn.Parameter(torch.ones(width, dtype=dtype))
        self.bias = nn.Parameter(torch.zeros(width, dtype=dtype))
        self.register_buffer("running_mean", torch.zeros(width, dtype=torch.float64))
        self.register_buffer("running_var", torch.ones(width, dtype=torch.float64))

    def forward(self, graph: Graph, x: torch.Tensor) -> torch.Tensor:
        if not self.training:
            scale = self.weight * (self.running_var + self.eps).rsqrt().to(x.dtype)
            return _scaled(x, scale, self.bias - self.running_mean.to(x.dtype) * scale, graph)
        count = graph.num_nodes
        with torch.no_grad():
            mean, variance = _statistics(x, graph, count)
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
            unbiased = variance * (count / max(count - 1, 1))
            self.running_var.lerp_(unbiased.to(self.running_var.dtype), self.momentum)
        return _Normalise.apply(
            x, self.weight, self.bias, mean.to(x.dtype), (variance + self.eps).rsqrt().to(x.dtype), graph
        )


class _Normalise(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor,
        mean: torch.Tensor,
        inverse: torch.Tensor,
        graph: Graph,
    ) -> torch.Tensor:
        y = graph.arena.empty(*x.shape, dtype=x.dtype)
        for rows in row_tiles(len(x)):
            torch.sub(x[rows], mean, out=y[rows]).mul_(inverse).mul_(weight).add_(bias)
        ctx.graph = graph
        ctx.save_for_backward(x, weight, mean, inverse)
        return y

    @staticmethod
    def backward(ctx: Any, gy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, weight, mean, inverse = ctx.saved_tensors
        gx = ctx.graph.arena.empty(*x.shape, dtype=x.dtype)  # before small ones take some of the space that it fits
        memory, wide = _of_a_tile(x, ctx.graph), _wide(x, ctx.graph)

        def centred(rows: slice) -> torch.Tensor:
            return torch.sub(x[rows], mean, out=memory[: rows.stop - rows.start]).mul_(inverse)

        sums = torch.zeros(2, len(mean), dtype=torch.float64)
        for rows in row_tiles(len(x)):
            _add_rows(sums[0], gy[rows], wide)
            _add_rows(sums[1], centred(rows).mul_(gy[rows]), wide)
        mean_gy, mean_gyc = (ctx.graph.total(sums) / ctx.graph.num_nodes).to(gy.dtype)
        for rows in row_tiles(len(x)):
            torch.sub(gy[rows], mean_gy, out=gx[rows]).sub_(centred(rows).mul_(mean_gyc)).mul_(weight * inverse)
        # The gradients of weight and bias stay local: like all parameters' they are summed over ranks with the others.
        return gx, sums[1].to(gy.dtype), sums[0].to(gy.dtype), None, None, None


def _statistics(x: torch.Tensor, graph: Graph, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (mean, variance), float64 (F,), over `count` rows of all ranks. Collective."""
    memory, wide = _of_a_tile(x, graph), _wide(x, graph)
    mean = graph.total(_summed(x, lambda part: part, wide)) / count
    near = mean.to(x.dtype)

    def squares(part: torch.Tensor) -> torch.Tensor:
        return torch.sub(part, near, out=memory[: len(part)]).square_()

    return mean, graph.total(_summed(x, squares, wide)) / count


def _of_a_tile(x: torch.Tensor, graph: Graph) -> torch.Tensor:
    """Memory for the rows of x that are worked on at a time."""
    return graph.arena.empty(min(tile_rows(), len(x)), x.shape[1], dtype=x.dtype)


def _wide(x: torch.Tensor, graph: Graph) -> torch.Tensor:
    """float64 memory for the rows that are summed at a time: of so few bytes that they stay in the caches."""
    count = _SUMMED_BYTES * torch.get_num_threads() // (8 * max(1, x.shape[1]))
    return graph.arena.empty(max(1, min(count, tile_rows(), len(x))), x.shape[1], dtype=torch.float64)


def _summed(x: torch.Tensor, of: Callable[[torch.Tensor], torch.Tensor], wide: torch.Tensor) -> torch.Tensor:
    """float64 (F,): the sum of of(x) by column."""
    total = torch.zeros(x.shape[1], dtype=torch.float64)
    for rows in row_tiles(len(x)):
        _add_rows(total, of(x[rows]), wide)
    return total


def _add_rows(total: torch.Tensor, part: torch.Tensor, wide: torch.Tensor) -> None:
    """Add the rows of a tile to total (F,).

    torch makes a wide copy of all the rows it sums, in fresh memory if it is large: this one is recycled.
    """
    for each in part.split(len(wide)):
        total += wide[: len(each)].copy_(each).sum(0)


def _scaled(x: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor, graph: Graph) -> torch.Tensor:
    """x · scale + shift, some rows at a time where nobody asks for gradients."""
    if torch.is_grad_enabled():
        return x * scale + shift
    y = graph.arena.empty(*x.shape, dtype=x.dtype)
    for rows in row_tiles(len(x)):
        torch.mul(x[rows], scale, out=y[rows]).add_(shift)
    return y


class LayerNorm(nn.LayerNorm):
    """Layer normalisation (Ba et al., 2016) of each row; local."""

    def forward(self, graph: Graph, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override] # as all norms here
        return super().forward(x)


class Identity(nn.Module):
    """No normalisation."""

    def __init__(self, width: int, dtype: torch.dtype | None = None) -> None:
        super().__init__()

    def forward(self, graph: Graph, x: torch.Tensor) -> torch.Tensor:
        return x


NORM_LAYERS = {"none": Identity, "layer": LayerNorm, "batch": BatchNorm}
