"""A model on offer: how it is built from a ModelSpec, which layer it is made of, which options it uses."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from torch import nn

from hpcgnn.errors import GraphError
from hpcgnn.graphfile.schema import GraphMeta
from hpcgnn.nn.graph import Graph
from hpcgnn.nn.linear import Bounded, Linear, glorot_bound
from hpcgnn.nn.model import Activation, Model, traits_of
from hpcgnn.nn.spec import PLAIN, ModelSpec
from hpcgnn.ops.draws import elu_
from hpcgnn.ops.layer_input import Input
from hpcgnn.ops.product import product
from hpcgnn.traits import LayerTraits


class TypedProjection(nn.Module):
    """x_i W_t(i) + b_t(i) by the node's type, then ReLU: forward(graph, x (n_p, d_in)) -> (n_p, d_out). Local."""

    def __init__(self, d_in: int, d_out: int, num_types: int, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.d_in, self.d_out = d_in, d_out
        self.weights = nn.Parameter(torch.zeros(num_types, d_in, d_out, dtype=dtype))
        self.bias = nn.Parameter(torch.zeros(num_types, d_out, dtype=dtype))

    def initial_bounds(self) -> list[Bounded]:
        """Each type's weights by themselves, and its bias, which may be all that the type has, likewise."""
        each = [(weight, glorot_bound(self.d_in, self.d_out)) for weight in self.weights.data]
        return [*each, (self.bias, glorot_bound(self.d_out, self.d_out))]

    def forward(self, graph: Graph, x: Input) -> torch.Tensor:
        kinds, parts, order = graph.node_type, [], []
        for kind, weight in enumerate(self.weights):
            rows = torch.nonzero(kinds == kind).flatten()
            order.append(rows)
            # Sparse features have no rows to pick from: all are multiplied, and the type's are taken.
            parts.append(x[rows] @ weight if isinstance(x, torch.Tensor) else (x @ weight)[rows])
        place = torch.cat(order).argsort()
        return torch.relu_(torch.cat(parts)[place] + self.bias[kinds])


#: Options that models of a kind use, of those declared `by_model`.
STACK = ("hidden", "norm", "residual", "jumping")
LINEAR = (*STACK, "keep_input")
ATTENTION = (*STACK, "heads", "out_heads", "attention_dropout")


def handed_on(spec: ModelSpec, widths: Sequence[int]) -> Sequence[int]:
    """The widths of the layers' outputs that are normalised and activated: all but the last, unless a map follows it.

    Args:
        widths: input width of the first layer, then output widths of all layers.
    """
    return widths[1:-1] if spec.options.jumping == "none" else widths[1:]


def stacked(
    layer: Callable[..., Any], spec: ModelSpec, activation: Activation = torch.relu_, hand_over: bool = True
) -> Model:
    """Layers `layer(d_in, d_out, dtype=...)`, with the columns of edges if it reads their features. hand_over: see
    Model.
    """
    widths, more = spec.widths, {}
    if "features" in traits_of(layer).edges:
        more["edge_features"] = spec.edge_features
    convs = [layer(a, b, dtype=spec.dtype, **more) for a, b in itertools.pairwise(widths)]
    return Model(spec, convs, handed_on(spec, widths), activation, hand_over=hand_over)


@dataclass(frozen=True)
class ModelEntry:
    """A model on offer.

    Attributes:
        layer: spec -> class of the model's layers, which has `traits`.
        uses: names of the `by_model` options that the model uses; None for unknown, as with a plugin.
        make: (class of the layers, spec) -> Model.
        stacked: each of `--layers` layers has a map of its own. Else one map comes after all hops (sgc).
        facts: {name: value} of a graph file that decide about parameters, besides the fields of ModelSpec.
    """

    layer: Callable[[ModelSpec], Any]
    uses: tuple[str, ...] | None
    make: Callable[[Any, ModelSpec], Model] = stacked
    stacked: bool = True
    facts: Callable[[GraphMeta], dict[str, Any]] = lambda meta: {}

    def build(self, spec: ModelSpec) -> Model:
        """The model."""
        return self.make(self.layer(spec), spec)

    def traits(self, spec: ModelSpec = PLAIN) -> LayerTraits:
        """The traits of the layers that a spec gives."""
        return traits_of(self.layer(spec))

    def divisor(self, spec: ModelSpec = PLAIN) -> str:
        """The sum of edge weights that the layers divide by: 'mean', 'sym' (graph/local.py), 'relation', or ''."""
        norm = getattr(self.layer(spec), "norm", "")
        return norm if norm in ("mean", "sym", "relation") else ""

    def reads_edges(self, spec: ModelSpec) -> bool:
        """Return whether layers read edge data: weights as features, types, features."""
        read = {"all", "types"}
        read |= {"features"} if spec.edge_features else set()
        return not read.isdisjoint(self.traits(spec).edges)

    def reads_edge_features(self, spec: ModelSpec) -> bool:
        """Whether layers read features of edges where there are any."""
        return not {"features", "all"}.isdisjoint(self.traits(spec).edges)


class Heads(nn.Module):
    """Base of the attention layers: H heads of `width` columns each, concatenated, or averaged.

    forward(graph, x (n_p, d_in)) -> (m, d_out). Collective. spec: ModelSpec, for attention_dropout and what
    edges carry; layer: its number, which keys that dropout. A layer that is made by itself needs neither.
    """

    traits: LayerTraits
    last_biases: tuple[str, ...] = ("",)  # the layer's own

    def __init__(
        self, d_in: int, width: int, heads: int = 1, average: bool = False, spec: ModelSpec = PLAIN, layer: int = 0
    ) -> None:
        super().__init__()
        self.heads, self.width, self.average, self.layer = heads, width, average, layer
        self.slope, self.attention_dropout = 0.2, spec.options.attention_dropout
        self.d_in, self.d_out = d_in, width if average else heads * width
        self.add_weights(spec)

    def add_weights(self, spec: ModelSpec) -> None:
        """Make the layer's parameters."""

    @property
    def vectors(self) -> list[nn.Parameter]:
        """Attention vectors (heads, width)."""
        return []

    def initial_bounds(self) -> list[Bounded]:
        """The attention vectors, as maps from `width` columns to all heads."""
        return [(vector, glorot_bound(self.heads, self.width)) for vector in self.vectors]

    def joined(self, y: torch.Tensor) -> torch.Tensor:
        """(n, d_out) from the heads' rows (n, H × width)."""
        return y.unflatten(1, (self.heads, self.width)).mean(1) if self.average else y

    @property
    def p(self) -> float:
        """The rate of dropped coefficients."""
        return self.attention_dropout if self.training else 0.0


def attentive(layer: type[Heads], spec: ModelSpec) -> Model:
    """Attention layers: hidden ones concatenate `heads` heads of `hidden` columns; the last one averages `out_heads`
    heads as wide as the classes.
    """
    options, before = spec.options, typed_projection(spec) if layer.traits.relational else None
    convs: list[Heads] = []
    d_first = d_in = spec.d_in if before is None else before.d_out
    for number in range(options.layers):
        last = number == options.layers - 1 and options.jumping == "none"
        width, heads = (spec.classes, options.out_heads) if last else (options.hidden, options.heads)
        convs.append(layer(d_in, width, heads, last and heads > 1, spec, number))
        d_in = convs[-1].d_out
    widths = (d_first, *[conv.d_out for conv in convs])
    # In place, but where the gradient of the fused layer needs its output.
    activation = elu_ if layer.traits.activation is None else torch.nn.functional.elu
    return Model(spec, convs, handed_on(spec, widths), activation, before)


@cache
def with_residual(conv_class: Any) -> Any:
    """The class of an attention layer, and one with a linear map of the own rows added to its output.

    The sum needs the rows as numbers and apart from the layer's output. So the layer takes no rows over.
    """

    class Residual(conv_class):  # type: ignore[misc]
        # A projection behind it reads rows as well: `product` stays.
        traits = replace(
            conv_class.traits,
            reads_self=True,
            activation=None,
            input="rows" if conv_class.traits.input == "tiles" else conv_class.traits.input,
        )

        def add_weights(self, spec: ModelSpec) -> None:
            super().add_weights(spec)
            self.own = Linear(self.d_in, self.d_out, bias=False, dtype=spec.dtype)

        def forward(self, graph: Graph, x: Input) -> torch.Tensor:
            y: torch.Tensor = super().forward(graph, x)
            if isinstance(x, torch.Tensor):
                return torch.addmm(y, graph.own(x), self.own.weight)
            return y + graph.own(product(x, self.own.weight))

    return Residual


def typed_projection(spec: ModelSpec) -> TypedProjection | None:
    """The projection to `hidden` columns before the first layer of a relational model, or None. Raises GraphError
    without types of edges.
    """
    if spec.edge_types == 0:
        raise GraphError(
            f"{spec.options.model} needs typed edges, and this graph has none; import it with edge types, or use "
            "another model"
        )
    if spec.node_types < 2 and not spec.sparse_input:
        return None
    return TypedProjection(spec.d_in, spec.options.hidden, max(1, spec.node_types), spec.dtype)
