"""Batch normalisation with the statistics of all nodes of all ranks (Ioffe and Szegedy, ICML'15).

Each rank reads its rows once, for their mean and the squares of the distances from it, in float64. Then come the mean
over all ranks, and the squares of the distances from that. (E[x²] − E[x]² loses every digit when the mean is large
against the spread.) ReLU and dropout behind the norm are done in its pass.

A batch norm would subtract a bias of the layer before it together with the mean, so that the bias's gradient is pure
rounding. Adam turns such a gradient into steps of ±lr, and the running mean lags behind these steps. Validation then
depended on the number of ranks. So no layer of ours has a bias before a batch norm (`last_biases`). Layers of plugins
are left as they are.

The forward pass saves its input. Only the output and the gradient of the input are as large.
"""

from typing import Any

import torch
from torch import nn

from hpcgnn import kernels
from hpcgnn.nn.graph import Graph
from hpcgnn.ops.draws import ReluDropout
from hpcgnn.ops.row_tiles import in_rows


class BatchNorm(nn.Module):
    """Normalise each column over all nodes of the graph. forward(graph, x (n_p, F)) -> (n_p, F), or relu of that, whose
    gradient is then left to its taker. Collective in training.

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

    def forward(self, graph: Graph, x: torch.Tensor, relu: ReluDropout | None = None) -> torch.Tensor:
        if not self.training:
            return self._by_running_statistics(graph, x, relu)
        count = graph.num_nodes
        with torch.no_grad():
            mean, variance = _statistics(in_rows(x), graph)
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
            unbiased = variance * (count / max(count - 1, 1))
            self.running_var.lerp_(unbiased.to(self.running_var.dtype), self.momentum)
        return _Normalise.apply(x, self.weight, self.bias, mean, (variance + self.eps).rsqrt(), graph, relu)

    def _by_running_statistics(self, graph: Graph, x: torch.Tensor, relu: ReluDropout | None) -> torch.Tensor:
        """The result in evaluation, in memory of the arena where nobody asks for gradients."""
        mean, inverse = self.running_mean, (self.running_var + self.eps).rsqrt()
        if torch.is_grad_enabled():
            scale = self.weight * inverse.to(self.weight.dtype)
            y = (x * scale + (self.bias - mean.to(scale.dtype) * scale)).to(x.dtype)
            if relu is not None:
                relu.apply_(y.detach(), slice(0, len(y)))
            return y
        y, wide = graph.arena.empty(*x.shape, dtype=x.dtype), kernels.accumulation_dtype(x.dtype)
        vectors = (each.to(wide) for each in (mean, inverse, self.weight, self.bias))
        kernels.norm_columns(y, in_rows(x), *vectors, **_behind(relu))
        return y


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
        relu: ReluDropout | None,
    ) -> torch.Tensor:
        x, wide = in_rows(x), kernels.accumulation_dtype(x.dtype)
        y, mean, inverse = graph.arena.empty(*x.shape, dtype=x.dtype), mean.to(wide), inverse.to(wide)
        kernels.norm_columns(y, x, mean, inverse, weight.to(wide), bias.to(wide), **_behind(relu))
        ctx.graph = graph
        ctx.save_for_backward(x, weight, mean, inverse)
        return y

    @staticmethod
    def backward(ctx: Any, gy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, weight, mean, inverse = ctx.saved_tensors
        gx, gy = ctx.graph.arena.empty(*x.shape, dtype=x.dtype), in_rows(gy)
        sums = torch.zeros(2 * len(mean), dtype=torch.float64)
        kernels.norm_gradient_sums(sums, gy, x, mean, inverse)
        mean_gy, mean_product = (ctx.graph.total(sums) / ctx.graph.num_nodes).to(mean.dtype).chunk(2)
        kernels.norm_columns_gradient(gx, gy, x, mean, inverse, mean_gy, mean_product, weight.to(mean.dtype) * inverse)
        # The gradients of weight and bias stay local: like all parameters' they are summed over ranks with the others.
        g_bias, g_weight = sums.to(weight.dtype).chunk(2)
        return gx, g_weight, g_bias, None, None, None, None


def _statistics(x: torch.Tensor, graph: Graph) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (mean, variance), float64 (F,), over the rows of all ranks. Collective."""
    moments = torch.empty(2 * x.shape[1], dtype=torch.float64)
    kernels.column_moments(moments, x)
    sums, squares = moments.chunk(2)
    mean = graph.total(sums) / graph.num_nodes
    distance = torch.sub(mean, sums, alpha=1 / max(len(x), 1))
    squares.addcmul_(distance, distance, value=len(x))
    return mean, graph.total(squares) / graph.num_nodes


def _behind(relu: ReluDropout | None) -> dict[str, Any]:
    """What follows the norm, as the kernel takes it."""
    return {} if relu is None else {"relu": True, "ids": relu.ids, "key": relu.key, "p": relu.p}


class LayerNorm(nn.LayerNorm):
    """Layer normalisation (Ba et al., 2016) of each row; local."""

    def forward(self, graph: Graph, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override] # as all norms here
        return super().forward(x.to(self.weight.dtype)).to(x.dtype)


class Identity(nn.Module):
    """No normalisation."""

    def __init__(self, width: int, dtype: torch.dtype | None = None) -> None:
        super().__init__()

    def forward(self, graph: Graph, x: torch.Tensor) -> torch.Tensor:
        return x


NORM_LAYERS = {"none": Identity, "layer": LayerNorm, "batch": BatchNorm}
