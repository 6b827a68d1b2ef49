"""One layer of a model that is trained by itself: convolution, norm, activation, and a linear head on the task's loss.

This is the layer-wise recipe of Retexo (Kolluri et al., 2023, algorithm 1). The layer's input does not change while it
is trained, so its neighbours' rows are exchanged once. A frozen input keeps them: as `KeptAggregate` if the aggregate
has no parameters in it, else as `KeptRows`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import nn

from hpcgnn.graph.sparse_rows import SparseRows
from hpcgnn.nn.conv import LinearConv
from hpcgnn.nn.graph import Graph
from hpcgnn.nn.linear import Linear
from hpcgnn.nn.model import Model
from hpcgnn.ops.row_tiles import Matrix


@dataclass(frozen=True)
class KeptAggregate:
    """The aggregate (n_p, d) of all in-neighbours and the own rows (n_p, d). Dropout comes after it, anew every
    epoch.
    """

    aggregate: Matrix
    input: Matrix

    @property
    def own(self) -> torch.Tensor:
        """The own rows (n_p, d)."""
        # Asked for of hidden layers alone, whose inputs are in memory.
        return cast(torch.Tensor, self.input)

    def convolve(self, stage: "LayerStage", graph: Graph, p: float) -> torch.Tensor:
        """The layer's output on the input, with dropout at rate p."""
        scaled = stage.spec.options.input_dropout == "scaled"
        return stage.conv.combine_constants(graph, self.aggregate, self.input, p, stage.layer, scaled=scaled)


@dataclass(frozen=True)
class KeptRows:
    """Rows (N, d) or SparseRows of the nodes of `graph`, with the n_p owned ones first."""

    graph: Graph
    rows: torch.Tensor | SparseRows
    num_owned: int

    @property
    def own(self) -> torch.Tensor:
        """As of KeptAggregate; so is what follows."""
        # Asked for of hidden layers alone, whose inputs are rows of numbers.
        return cast(torch.Tensor, self.rows)[: self.num_owned]

    def convolve(self, stage: "LayerStage", graph: Graph, p: float) -> torch.Tensor:
        x = self.graph.dropout(self.rows, p, stage.layer)
        return stage.conv(self.graph, x if stage.before is None else stage.before(self.graph, x))[: self.num_owned]


#: A layer's input that does not change while the layer is trained.
Frozen = KeptAggregate | KeptRows


class LayerStage(nn.Module):
    """forward(graph) -> logits (n_p, C): the head's, or the output of the last layer, which has no head.

    Attributes:
        model: its layer is trained in place, with `model.heads`.
        frozen: frozen() returns its frozen input, collective.
    """

    def __init__(self, model: Model, layer: int, frozen: Callable[[], Frozen]) -> None:
        super().__init__()
        last = layer == len(model.convs) - 1
        self.spec, self.layer, self._frozen, self._activation = model.spec, layer, frozen, model._activation
        conv: Any = model.convs[layer]  # a Conv or alike
        if hasattr(conv, "hands_over"):
            conv.hands_over = False
        self.conv = conv
        self.norm: nn.Module | None = None if last else model.norms[layer]
        self.head: nn.Module | None = None if last else model.heads[layer]
        self.before = model.before if layer == 0 else None

    @property
    def convs(self) -> list[Any]:
        """Return the layer alone, for `--weight-decay-layers first`."""
        return [self.conv]

    def forward(self, graph: Graph) -> torch.Tensor:
        p = self.spec.options.dropout if self.training else 0.0
        frozen = self._frozen()
        drops_input = self.layer > 0 or self.spec.options.input_dropout != "none"
        h = frozen.convolve(self, graph, p if drops_input else 0.0)
        if self.head is None:
            return h
        return self.head(graph.dropout(self._activated(graph, h, frozen), p, self.layer + 1))

    def hidden(self, graph: Graph) -> torch.Tensor:
        """Return the next layer's input: owned rows (n_p, d) before the head, in evaluation mode. Collective."""
        was, frozen = self.training, self._frozen()
        self.eval()
        with torch.no_grad():
            x = self._activated(graph, frozen.convolve(self, graph, 0.0), frozen)
        self.train(was)
        return x

    def _activated(self, graph: Graph, h: torch.Tensor, frozen: Frozen) -> torch.Tensor:
        assert self.norm is not None, "the last layer's output is not activated"
        x = self.norm(graph, h)
        if x is h and not isinstance(self.conv, LinearConv):
            x = h.clone()  # a layer may need its output for its gradient, and the activation is in place
        x = self._activation(x)
        return x + frozen.own if self.spec.options.residual and self.layer > 0 else x


def add_heads(model: Model) -> None:
    """Give a model `heads`: for each layer but the last a linear map from its output to the classes."""
    spec = model.spec
    model.heads = nn.ModuleList(Linear(width, spec.classes, dtype=spec.dtype) for width in model.widths)
