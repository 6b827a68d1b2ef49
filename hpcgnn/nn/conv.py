"""The common part of all convolutions: two operations, and the choice of the narrower side to send.

A linear convolution is `gather` (aggregate the input: needs the neighbours) and then `combine` (the rest: local). With
the two apart, a constant input can be aggregated once and kept. Since A(xW) = (Ax)W, the aggregation can also come
after the transformation; we send the narrower of the two.
"""

from collections.abc import Callable
from operator import attrgetter
from typing import cast

import torch
from torch import nn

from hpcgnn.nn.graph import Graph
from hpcgnn.ops.convolve import Convolve
from hpcgnn.ops.draws import Purpose, ReluDropout
from hpcgnn.ops.handover import Handover
from hpcgnn.ops.layer_input import ConstantRows, DroppedRows, Input
from hpcgnn.ops.operators import WeightedSum
from hpcgnn.ops.product import product
from hpcgnn.ops.row_tiles import Matrix
from hpcgnn.traits import LayerTraits

#: (W_n (d_in, d_out), W_s (d_in, d_out) or None, b (d_out,) or None).
Weights = tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]


def weights_of(neighbour: str, own: str | None, bias: str) -> Callable[["Conv"], Weights]:
    """`weights` of a layer, by the names of its parameters."""
    read = attrgetter(neighbour, own or bias, bias)

    def weights(layer: "Conv") -> Weights:
        neighbour, beside, bias = read(layer)
        return neighbour, None if own is None else beside, bias

    return weights


class Conv(nn.Module):
    """Base of the convolutions: `finish` of A(x) W_n + x W_s + b, in separate steps.

    Attributes:
        d_in, d_out: widths.
        norm: how the neighbours are normalised (see graph/local.py).
        traits: needs and capabilities of the layer.
        last_biases: the modules whose bias is added last. A batch norm would take it away again (see nn/norm.py), and
            the layer then does without it.
    """

    norm = "sum"
    traits = LayerTraits(reads_self=False)
    last_biases: tuple[str, ...] = ("linear",)
    kept: torch.dtype | None = None  # dtype of the output, where it is not that of the weights: set by the model

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__()
        self.d_in, self.d_out = d_in, d_out

    def weights(self) -> Weights:
        """(W_n (d_in, d_out), W_s (d_in, d_out) or None, b (d_out,) or None)."""
        raise NotImplementedError

    def gather(self, graph: Graph, x: torch.Tensor) -> torch.Tensor:
        """The aggregate of raw inputs x (n_p, d_in) -> (n_p, d_in). Collective."""
        return graph.aggregate(x, self.norm)

    def combine(self, aggregate: torch.Tensor, x: torch.Tensor | None) -> torch.Tensor:
        """The output (n_p, d_out) from the aggregate (n_p, d_in) and, if `traits.reads_self`, the input x (n_p, d_in).
        Local.
        """
        neighbour, own, bias = self.weights()
        y = aggregate @ neighbour if bias is None else torch.addmm(bias, aggregate, neighbour)
        if own is None:
            return y
        assert x is not None, "a convolution with W_s uses its input"
        return y.addmm_(x, own)

    def combine_constants(
        self, graph: Graph, aggregate: Matrix, x: Matrix, p: float, layer: int = 0, *, scaled: bool = False
    ) -> torch.Tensor:
        """Combine a constant aggregate and a constant input (n_p, d_in), with dropout of rate p on both. Local. Nothing
        is kept for the gradient.

        Args:
            graph: the graph.
            aggregate: aggregate of the input.
            x: input of the layer.
            p: rate of dropout.
            layer: number of the layer, a key of the draws.
            scaled: whether dropout of a sum has the noise of a mean of rows (ops/draws.py).
        """
        neighbour, own, bias = self.weights()
        parts = [(aggregate, neighbour, Purpose.DROPOUT_AGGREGATE)]
        if own is not None:
            parts.append((x, own, Purpose.DROPOUT))
        return self.finish(graph.combine(parts, bias, p, layer, self.kept, scaled=scaled))

    def finish(self, y: torch.Tensor) -> torch.Tensor:
        """The output (m, d_out) from the sum y of the products and the bias."""
        return y

    def transform_first(self, graph: Graph, x: Input) -> torch.Tensor:
        """The same output from aggregating transformed rows of width d_out. Collective."""
        neighbour, own, bias = self.weights()
        y = self.gather(graph, product(x, neighbour))
        y = y if own is None else y.add_(graph.own(product(x, own)))
        return y if bias is None else y.add_(bias)

    def forward(self, graph: Graph, x: Input) -> torch.Tensor:
        """Output (m, d_out), of the nodes that the graph computes: all own ones unless rows are pruned. Collective."""
        if self.d_out < self.d_in or not isinstance(x, torch.Tensor):
            return self.transform_first(graph, x)
        return self.combine(self.gather(graph, x), graph.own(x) if self.traits.reads_self else None)


class LinearConv(Conv):
    """A convolution A(x) W_n + x W_s + b, which runs as one operator and applies the activation before it. The separate
    steps are for sparse features, wider outputs, and schedules that keep the aggregate.
    """

    traits = LayerTraits(
        neighbours="sums",
        prunable=True,
        reads_self=False,
        input="tiles",
        activation=ReluDropout,
        codes=True,
    )

    def forward(self, graph: Graph, x: Input | Handover) -> torch.Tensor:
        """Output (m, d_out). Collective. x: also a Handover, whose activation is done first, in the place of its
        rows.
        """
        (neighbour, own, bias), activation = self.weights(), None
        if isinstance(x, Handover):
            activation, (x, _) = x.activation, x.take()
        if isinstance(x, ConstantRows):
            if self.d_out < self.d_in:
                neighbour, own = x.scaled(neighbour), None if own is None else x.scaled(own)
            else:
                x = x.whole()
        if self.d_out <= self.d_in and not isinstance(x, DroppedRows):
            operator = graph.operator(WeightedSum(self.norm, x.dtype))
            return Convolve.apply(x, neighbour, own, bias, operator, activation, self.kept)
        x = x if activation is None else activation(cast(torch.Tensor, x))
        y = super().forward(graph, x.to(neighbour.dtype) if isinstance(x, torch.Tensor) else x)
        return y.to(self.kept or y.dtype)
