"""A stack of convolutions."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import torch
from torch import nn

from hpcgnn.nn.graph import Graph
from hpcgnn.nn.linear import Linear
from hpcgnn.nn.norm import NORM_LAYERS, BatchNorm, Identity
from hpcgnn.nn.spec import ModelSpec
from hpcgnn.ops.draws import ReluDropout
from hpcgnn.ops.handover import Handover
from hpcgnn.traits import LayerTraits

UNKNOWN = LayerTraits()

Activation = Callable[[torch.Tensor], torch.Tensor]
#: How a map in the end sees the outputs of layers, by `--jumping`.
JOINED: dict[str, Callable[[list[torch.Tensor]], torch.Tensor]] = {
    "cat": lambda seen: torch.cat(seen, 1),
    "max": lambda seen: reduce(torch.maximum, seen),
    "sum": lambda seen: reduce(torch.add, seen),
    "last": lambda seen: seen[-1],
}


def traits_of(layer: object) -> LayerTraits:
    """Return the traits of a layer or of a class of layers; an unknown layer has the default ones."""
    return getattr(layer, "traits", UNKNOWN)


class Model(nn.Module):
    """convolution → norm → activation → dropout, L times; the last layer is a convolution alone.

    forward(graph) -> logits (n_p, C) of owned nodes, or of the owned training nodes alone if rows are pruned.
    Collective.

    Dropout is applied to the input of every layer. With `residual` every hidden layer but the first, whose input has
    another width, adds its input (before dropout) to its output. With `jumping` (Xu et al., ICML'18) the last layer is
    like the hidden ones. A linear map then makes the logits from all outputs, with dropout before it: joined ('cat'),
    their largest elements ('max'), their sum ('sum'), or the last one alone ('last').
    """

    heads: nn.ModuleList  # only where layers are trained one by one: see stage.add_heads

    def __init__(
        self,
        spec: ModelSpec,
        convs: Sequence[Any],
        widths: Sequence[int],
        activation: Activation = torch.relu_,
        before: nn.Module | None = None,
        hand_over: bool = True,
    ) -> None:
        """Make a model of given convolutions.

        Args:
            spec: the ModelSpec.
            convs: the convolutions.
            widths: widths of all outputs but the last, and with `jumping` of the last too.
            activation: activation of the hidden layers.
            before: module on the features, (graph, x) -> x, or None.
            hand_over: whether layers with an `activation` attribute apply it themselves.
        """
        super().__init__()
        # In place: its input, the output of a convolution or a norm, is not needed again for the gradient.
        self.spec, self._activation, self.before, self.widths = spec, activation, before, tuple(widths)
        # With a residual both, before and after, must exist, and so must all that a map sees in the end.
        options = spec.options
        self._hand_over = hand_over and not options.residual and options.jumping == "none"
        self.convs = nn.ModuleList(convs)
        conv: Any  # a Conv or alike: what else it has, its class says
        for conv in convs[: len(self.widths)]:
            conv.kept = spec.kept
            for name in () if spec.hidden_bias else conv.last_biases:
                conv.get_submodule(name).bias = None
        self.norms = nn.ModuleList(NORM_LAYERS[options.norm](width, dtype=spec.dtype) for width in widths)
        self.jump: Linear | None = None
        if options.jumping != "none":
            seen = sum(self.widths) if options.jumping == "cat" else max(self.widths)
            self.jump = Linear(seen, spec.classes, dtype=spec.dtype)
        for conv, norm, above in zip(self.convs, self.norms, self.convs[1:], strict=False):
            if hasattr(conv, "hands_over"):
                takes = self._takes_over(above) and hasattr(above, "hands_over")
                conv.hands_over = takes and isinstance(norm, Identity)

    def forward(self, whole: Graph) -> torch.Tensor:
        # Rows, or a Handover for a layer that takes over.
        h: Any = self._input_layer(whole.at(0))
        # Outputs of hidden layers: those that a map in the end sees, or the last one.
        seen: list[torch.Tensor] = []
        conv: Any
        for layer, (norm, conv) in enumerate(itertools.zip_longest(self.norms, [*self.convs][1:]), start=1):
            graph = whole.at(layer)
            if conv is not None and self._takes_over(conv):  # and applies the activation itself
                activation: Any = graph.activation(conv.traits.activation, self._p, layer)
                if isinstance(norm, BatchNorm) and isinstance(activation, ReluDropout):  # in one pass
                    h, activation = norm(graph, h, activation), replace(activation, done=True)
                elif not isinstance(norm, Identity):
                    h = norm(graph, h)
                h = h if isinstance(h, Handover) else Handover(h)
                h.activation = activation
                h = conv(graph, h)
                continue
            x = self._activation(norm(graph, h))
            if self.spec.options.residual and seen:
                x = x + whole.at(layer - 1).own(seen[-1])
            seen = [x] if self.spec.options.jumping in ("none", "last") else [*seen, x]
            if conv is not None:
                h = conv(graph, graph.dropout(x, self._p, layer))
        if self.jump is None:
            return h
        return self.jump(whole.dropout(JOINED[self.spec.options.jumping](seen), self._p, len(self.norms)))

    def _takes_over(self, conv: nn.Module) -> bool:
        """Whether a layer takes its input over with its memory (see ops/handover.py)."""
        return self._hand_over and traits_of(conv).activation is not None

    @property
    def prunable_layers(self) -> int:
        """How many of the last layers can compute some of their rows only (see graph/transforms/pruning.py)."""
        first = len(self.convs)
        if self.jump is not None:
            return 0
        while first > 0 and (traits_of(self.convs[first - 1]).prunable or (first == 1 and self.spec.keeps_input)):
            first -= 1
        # Batch norm needs every row of its input, the output of every layer but the last.
        return min(len(self.convs) - first, 1 if self.spec.options.norm == "batch" else len(self.convs))

    @property
    def is_local(self) -> bool:
        """Whether the model sees each node alone: no neighbours, and no statistics of all nodes."""
        return self.spec.options.norm != "batch" and all(traits_of(conv).neighbours == "none" for conv in self.convs)

    def _input_layer(self, graph: Graph) -> torch.Tensor | Handover:
        """The first convolution, whose input never changes: nothing is exchanged for it after the first step if it
        pays.
        """
        conv: Any = self.convs[0]
        x: Any = graph.features  # of numbers where the aggregate is kept
        p = 0.0 if self.spec.options.input_dropout == "none" else self._p
        if not self.spec.keeps_input:
            in_tiles = self.before is None and traits_of(conv).input == "tiles"
            x = graph.constant_rows(x, p, 0) if in_tiles or self.spec.held else graph.dropout(x, p, 0)
            return conv(graph, x if self.before is None else self.before(graph, x))
        aggregate = graph.constant("input aggregate", lambda: conv.gather(graph, x).to(self.spec.aggregate))
        return conv.combine_constants(graph, aggregate, x, p, scaled=self.spec.options.input_dropout == "scaled")

    @property
    def _p(self) -> float:
        return self.spec.options.dropout if self.training else 0.0
