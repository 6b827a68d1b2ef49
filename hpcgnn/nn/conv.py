"""The common part of all convolutions: two operations, and the choice of the narrower side to send.

A linear convolution is `gather` (aggregate the input: needs the neighbours) and then `combine` (the rest: local). With
the two apart, a constant input can be aggregated once and kept. Since A(xW) = (Ax)W, the aggregation can also come
after the transformation; we send the narrower of the two.
"""

from typing import cast

import torch
from torch import nn

from hpcgnn.nn.graph import Graph, Part
from hpcgnn.ops.convolution import Convolve
from hpcgnn.ops.draws import Purpose
from hpcgnn.ops.dropout import ReluDropout
from hpcgnn.ops.handover import Handover
from hpcgnn.ops.layer_input import ConstantRows, DroppedRows, Input
from hpcgnn.ops.operators import Linear
from hpcgnn.ops.row_tiles import Matrix
from hpcgnn.traits import LayerTraits

#: (W_n (d_in, d_out), W_s (d_in, d_out) or None, b (d_out,) or None).
Weights = tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]

#: Products of constants whose sum is the output, and its bias.
Products = tuple[list[Part], torch.Tensor | None]


class Conv(nn.Module):
    """Base of the convolutions.

    Attributes:
        d_in, d_out: widths.
        norm: how the neighbours are normalised (see graph/local.py).
        traits: needs and capabilities of the layer.
    """

    norm = "sum"
    traits = LayerTraits(reads_self=False)
    kept: torch.dtype | None = None  # dtype of the output, where it is not that of the weights: set by the model

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__()
        self.d_in, self.d_out = d_in, d_out

    def drop_bias(self) -> None:
        """Do without the bias that is added last: a batch norm comes next, which takes it away again (see
        nn/norm.py).
        """
        raise NotImplementedError

    def gather(self, graph: Graph, x: torch.Tensor) -> torch.Tensor:
        """The aggregate of raw inputs x (n_p, d_in) -> (n_p, d_in). Collective."""
        return graph.aggregate(x, self.norm)

    def combine(self, aggregate: torch.Tensor, x: torch.Tensor | None) -> torch.Tensor:
        """The output (n_p, d_out) from the aggregate (n_p, d_in) and, if `traits.reads_self`, the input x (n_p, d_in).
        Local.
        """
        raise NotImplementedError

    def combine_constants(
        self,
        graph: Graph,
        aggregate: Matrix,
        x: Matrix,
        p: float,
        layer: int = 0,
        *,
        scaled: bool = False,
    ) -> torch.Tensor:
        """Combine a constant aggregate and a constant input (n_p, d_in), with dropout of rate p on both. Local.

        Args:
            graph: the graph.
            aggregate: aggregate of the input.
            x: input of the layer.
            p: rate of dropout.
            layer: number of the layer, a key of the draws.
            scaled: whether dropout of a sum has the noise of a mean of rows (ops/dropout.py). Other aggregates have
                none.
        """
        if self.traits.constants_in_tiles:
            parts, bias = self.products_of_constants(aggregate, x)
            return self.finish(graph.combine(parts, bias, p, layer, self.kept, scaled=scaled))
        assert isinstance(aggregate, torch.Tensor) and isinstance(x, torch.Tensor), "others are read in tiles"
        return self.combine(
            graph.own(graph.dropout(aggregate, p, layer, Purpose.DROPOUT_AGGREGATE)),
            graph.own(graph.dropout(x, p, layer)) if self.traits.reads_self else None,
        )

    def products_of_constants(self, aggregate: Matrix, x: Matrix) -> Products:
        """The products that `finish` makes the output of, with `traits.constants_in_tiles`. None of them is kept."""
        raise NotImplementedError

    def finish(self, y: torch.Tensor) -> torch.Tensor:
        """The output (m, d_out) from the sum y of these products and the bias."""
        return y

    def transform_first(self, graph: Graph, x: Input) -> torch.Tensor:
        """The same output from aggregating transformed rows of width d_out. Collective."""
        raise NotImplementedError

    def forward(self, graph: Graph, x: Input) -> torch.Tensor:
        """Output (m, d_out), of the nodes that the graph computes: all own ones unless rows are pruned. Collective."""
        if self.d_out < self.d_in or not isinstance(x, torch.Tensor):
            return self.transform_first(graph, x)
        return self.combine(self.gather(graph, x), graph.own(x) if self.traits.reads_self else None)


class LinearConv(Conv):
    """A convolution A(x) W_n + x W_s + b, which runs as one operator and applies the activation before it.

    Subclasses return W_n, W_s (or None) and b from `weights()`. `gather`, `combine` and `transform_first` are the same
    in separate steps, for sparse features and for schedules that keep the aggregate.
    """

    traits = LayerTraits(
        neighbours="sums",
        prunable=True,
        reads_self=False,
        input="tiles",
        activation=ReluDropout,
        codes=True,
    )

    def weights(self) -> Weights:
        """(W_n (d_in, d_out), W_s (d_in, d_out) or None, b (d_out,) or None)."""
        raise NotImplementedError

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
            operator = graph.operator(Linear(self.norm, x.dtype))
            return Convolve.apply(x, neighbour, own, bias, operator, activation, self.kept)
        x = x if activation is None else activation(cast(torch.Tensor, x))
        y = super().forward(graph, x.to(neighbour.dtype) if isinstance(x, torch.Tensor) else x)
        return y.to(self.kept or y.dtype)

    def combine(self, aggregate: torch.Tensor, x: torch.Tensor | None) -> torch.Tensor:
        neighbour, own, bias = self.weights()
        y = aggregate @ neighbour if bias is None else torch.addmm(bias, aggregate, neighbour)
        if own is None:
            return y
        assert x is not None, "a convolution with W_s uses its input"
        return y.addmm_(x, own)

    def products_of_constants(self, aggregate: Matrix, x: Matrix) -> Products:
        neighbour, own, bias = self.weights()
        parts: list[Part] = [(aggregate, neighbour, Purpose.DROPOUT_AGGREGATE)]
        return parts if own is None else [*parts, (x, own, Purpose.DROPOUT)], bias

    def transform_first(self, graph: Graph, x: Input) -> torch.Tensor:
        neighbour, own, bias = self.weights()
        y = graph.aggregate(x @ neighbour, self.norm)
        y = y if own is None else y.add_(graph.own(x @ own))
        return y if bias is None else y.add_(bias)
