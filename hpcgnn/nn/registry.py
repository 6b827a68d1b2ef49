"""The models that `--model` offers, and how others are added: `register`, in a file given as `--plugin`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import torch

from hpcgnn.errors import ConfigError, GraphError
from hpcgnn.nn.appnp import OwnLayer, PropagatedLayer
from hpcgnn.nn.gat import GATConv
from hpcgnn.nn.gat_edges import EdgeGATConv
from hpcgnn.nn.gatv2 import GATv2Conv
from hpcgnn.nn.gcn import GCNConv
from hpcgnn.nn.gin import GINConv
from hpcgnn.nn.gine import GINEConv
from hpcgnn.nn.model import Activation, Model
from hpcgnn.nn.pna import PNAConv
from hpcgnn.nn.rgat import RGATConv
from hpcgnn.nn.rgcn import RGCNConv, TypedProjection
from hpcgnn.nn.sage import SAGEConv
from hpcgnn.nn.sage_max import SAGEMaxConv, SAGEPoolConv
from hpcgnn.nn.sgc import SGCConv
from hpcgnn.nn.sign import HopsLayer
from hpcgnn.nn.spec import ModelSpec
from hpcgnn.nn.transformer import TransformerConv

_ELU = torch.nn.functional.elu
_ELU_IN_PLACE = partial(_ELU, inplace=True)

ConvClass = TypeVar("ConvClass", bound=torch.nn.Module)


@dataclass(frozen=True)
class Entry:
    """A model on offer. build(spec) -> Model; self_loops: what the model wants of the graph, 'add' or 'keep'.

    constant_input(spec): whether the first layer's aggregate of the features has no parameters in it. edges: whether it
    reads what edges carry (weights as features, types, features). edge_features(spec): whether it reads features of
    edges where there are any. relational: whether it has weights for each type of edge. features_again(spec): whether
    rows of the features themselves are sent in every step, or in every evaluation, rather than once in a run or as
    projections. uses: which of the options that are declared `by_model` it uses, None where that is not known;
    weights(spec): whether it reads the weights of edges, likewise. can_drop_bias: whether its layers have a method
    `drop_bias`. divides(spec): by which sums of edge weights it divides: 'sym', 'mean' (see graph/norms.py), 'relation'
    or ''. sums(spec): whether sums with factors that do not change are all that its layers make of their neighbours'
    rows.
    """

    build: Callable[[ModelSpec], Model]
    self_loops: str
    constant_input: Callable[[ModelSpec], bool] = lambda spec: True
    edges: Callable[[ModelSpec], bool] = lambda spec: False
    features_again: Callable[[ModelSpec], bool] = lambda spec: True
    uses: tuple[str, ...] | None = None
    weights: Callable[[ModelSpec], bool] = lambda spec: True
    can_drop_bias: bool = True
    divides: Callable[[ModelSpec], str] = lambda spec: ""
    sums: Callable[[ModelSpec], bool] = lambda spec: False
    edge_features: Callable[[ModelSpec], bool] = lambda spec: False
    relational: bool = False


def _never(spec: ModelSpec) -> bool:
    return False


def _always(spec: ModelSpec) -> bool:
    return True


def _has_edge_features(spec: ModelSpec) -> bool:
    return spec.edge_features > 0


def _roots(spec: ModelSpec) -> str:
    return "sym"


def _sends_narrower_side(spec: ModelSpec) -> bool:
    first_out = spec.classes if spec.model == "sgc" else spec.widths[1]
    return not spec.keeps_input and not spec.sparse_input and first_out >= spec.d_in


def _sage_sends(spec: ModelSpec) -> bool:
    return {"mean": _sends_narrower_side(spec), "max": not spec.keeps_input, "pool": False}[spec.aggregator]


def _rgcn_sends(spec: ModelSpec) -> bool:
    return spec.node_types <= 1 and not spec.sparse_input


def _handed_on(spec: ModelSpec, widths: Sequence[int]) -> Sequence[int]:
    """Of the input and output widths of layers those that are normalised and activated: all but the last, unless a map
    comes after it.
    """
    return widths[1:-1] if spec.jumping == "none" else widths[1:]


def _stacked(
    conv_class: Callable[..., Any], activation: Activation = torch.relu_, hand_over: bool = True
) -> Callable[[ModelSpec], Model]:
    def build(spec: ModelSpec) -> Model:
        widths = spec.widths
        convs = [conv_class(a, b, dtype=spec.dtype) for a, b in zip(widths[:-1], widths[1:])]
        return Model(spec, convs, _handed_on(spec, widths), activation, hand_over=hand_over)

    return build


def _build_sage(spec: ModelSpec) -> Model:
    kinds = {"mean": SAGEConv, "max": SAGEMaxConv, "pool": SAGEPoolConv}
    return _stacked(kinds[spec.aggregator])(spec)


def _build_sgc(spec: ModelSpec) -> Model:
    return Model(spec, [SGCConv(spec.d_in, spec.classes, spec.layers, dtype=spec.dtype)], [])


def _build_appnp(spec: ModelSpec) -> Model:
    widths = spec.widths
    layers = [OwnLayer(a, b, spec.dtype) for a, b in zip(widths[:-2], widths[1:-1])]
    layers.append(PropagatedLayer(widths[-2], widths[-1], spec.hops, spec.teleport, spec.dtype))
    return Model(spec, layers, widths[1:-1])


def _build_sign(spec: ModelSpec) -> Model:
    widths = spec.widths
    layers: list[OwnLayer | HopsLayer] = [OwnLayer(a, b, spec.dtype) for a, b in zip(widths[:-1], widths[1:])]
    if spec.layers > 1:  # a single one is a linear map of all columns
        layers[0] = HopsLayer(widths[0], widths[1], spec.parts, spec.dtype)
    return Model(replace(spec, residual=False), layers, widths[1:-1])


def _typed_projection(spec: ModelSpec) -> TypedProjection | None:
    """What comes before the first layer of a relational model with several types of nodes: a projection by type to
    `hidden` columns. Raises GraphError without types of edges.
    """
    if spec.edge_types == 0:
        raise GraphError(
            f"{spec.model} needs typed edges, and this graph has none; import it with edge types, or use another model"
        )
    if spec.node_types <= 1 and not spec.sparse_input:
        return None
    return TypedProjection(spec.d_in, spec.hidden, max(1, spec.node_types), spec.dtype)


def _build_rgcn(spec: ModelSpec) -> Model:
    before, widths = _typed_projection(spec), spec.widths
    if before is not None:
        widths = (spec.hidden, *widths[1:])
    relations = spec.edge_types + spec.loop_relation
    convs = [RGCNConv(a, b, relations, spec.bases, spec.dtype) for a, b in zip(widths[:-1], widths[1:])]
    return Model(spec, convs, _handed_on(spec, widths), before=before)


def _build_gine(spec: ModelSpec) -> Model:
    if spec.edge_features == 0:
        raise GraphError(
            "gine needs edges with features, and there are none; import the graph with them (--edge-features), train "
            "with --edge-features file, or use gin"
        )
    return _stacked(partial(GINEConv, edge_features=spec.edge_features))(spec)


def _build_pna(spec: ModelSpec) -> Model:
    return _stacked(partial(PNAConv, edge_features=spec.edge_features))(spec)


def _attentive(conv_class: type[Any], activation: Activation = _ELU_IN_PLACE) -> Callable[[ModelSpec], Model]:
    """Hidden layers concatenate `heads` heads of `hidden` columns; the last averages `out_heads` heads as wide as the
    classes.
    """

    def build(spec: ModelSpec) -> Model:
        before = _typed_projection(spec) if MODELS[spec.model].relational else None
        convs, d_in = [], spec.d_in if before is None else before.d_out
        for layer in range(spec.layers):
            last = layer == spec.layers - 1 and spec.jumping == "none"
            width, heads = (spec.classes, spec.out_heads) if last else (spec.hidden, spec.heads)
            convs.append(conv_class(d_in, width, heads, last and heads > 1, spec, layer))
            d_in = convs[-1].d_out
        d_first = spec.d_in if before is None else before.d_out
        widths = (d_first, *[conv.d_out for conv in convs])
        return Model(spec, convs, _handed_on(spec, widths), activation, before)

    return build


def _build_gat(spec: ModelSpec) -> Model:
    missing = {"weight": not spec.weighted, "type": spec.edge_types == 0}.get(spec.edge_term, False)
    if missing:
        raise GraphError(
            f"--edge-term {spec.edge_term} needs edges with {spec.edge_term}s, and this graph has none; import it "
            "with them, or leave the option out"
        )
    if spec.edge_features:
        return _attentive(EdgeGATConv)(spec)
    return _attentive(GATConv, _ELU)(spec)  # its gradient needs its output


_STACK = ("hidden", "norm", "residual", "jumping", "edge_dropout")
_LINEAR = (*_STACK, "keep_input")
_ATTENTION = (*_STACK, "heads", "out_heads", "attention_dropout")

MODELS = {
    "gcn": Entry(
        _stacked(GCNConv),
        GCNConv.self_loops,
        features_again=_sends_narrower_side,
        uses=_LINEAR,
        divides=_roots,
        sums=_always,
    ),
    "sage": Entry(
        _build_sage,
        SAGEConv.self_loops,
        lambda spec: spec.aggregator != "pool",
        features_again=_sage_sends,
        uses=(*_LINEAR, "aggregator"),
        weights=lambda spec: spec.aggregator == "mean",
        divides=lambda spec: "mean" if spec.aggregator == "mean" else "",
        sums=lambda spec: spec.aggregator == "mean",
    ),
    "gin": Entry(
        _stacked(GINConv), GINConv.self_loops, features_again=_sends_narrower_side, uses=_LINEAR, sums=_always
    ),
    "sgc": Entry(
        _build_sgc,
        SGCConv.self_loops,
        features_again=_sends_narrower_side,
        uses=("keep_input", "edge_dropout"),
        divides=_roots,
        sums=_always,
    ),
    "appnp": Entry(
        _build_appnp,
        OwnLayer.self_loops,
        _never,
        features_again=_never,
        uses=("hidden", "norm", "residual", "hops", "teleport", "edge_dropout"),
        divides=_roots,
        sums=_always,
    ),
    "sign": Entry(
        _build_sign,
        OwnLayer.self_loops,
        _never,
        features_again=_never,
        uses=("hidden", "norm"),
        weights=_never,
    ),
    "gat": Entry(
        _build_gat,
        GATConv.self_loops,
        _never,
        lambda spec: spec.edge_term != "none" or _has_edge_features(spec),
        _never,
        (*_ATTENTION, "negative_slope", "edge_term"),
        lambda spec: spec.edge_term == "weight",
        edge_features=lambda spec: spec.edge_term == "none",
    ),
    "gatv2": Entry(
        _attentive(GATv2Conv),
        GATv2Conv.self_loops,
        _never,
        _has_edge_features,
        features_again=_never,
        uses=(*_ATTENTION, "negative_slope"),
        weights=_never,
        edge_features=_always,
    ),
    "transformer": Entry(
        _attentive(TransformerConv),
        TransformerConv.self_loops,
        _never,
        _has_edge_features,
        features_again=_never,
        uses=_ATTENTION,
        weights=_never,
        edge_features=_always,
    ),
    "rgcn": Entry(
        _build_rgcn,
        RGCNConv.self_loops,
        _never,
        _always,
        _rgcn_sends,
        (*(name for name in _STACK if name != "edge_dropout"), "bases"),
        divides=lambda spec: "relation",
        relational=True,
    ),
    "rgat": Entry(
        _attentive(RGATConv),
        RGATConv.self_loops,
        _never,
        _always,
        _never,
        (*_ATTENTION, "negative_slope", "bases"),
        _never,
        relational=True,
    ),
    "pna": Entry(
        _build_pna,
        PNAConv.self_loops,
        _never,
        _has_edge_features,
        uses=_STACK,
        weights=_never,
        edge_features=_always,
    ),
    "gine": Entry(
        _build_gine,
        GINEConv.self_loops,
        _never,
        _has_edge_features,
        uses=_STACK,
        weights=_never,
        edge_features=_always,
    ),
}


def ignored(spec: ModelSpec, num_edge_features: int) -> list[str]:
    """A line for each of weights, types and features of edges that the graph has and the model does not read.

    num_edge_features: of the graph.
    """
    entry, lines = MODELS[spec.model], []
    kind = f" --aggregator {spec.aggregator}" if spec.model == "sage" else ""
    what = "{} of this graph's edges are ignored by --model " + spec.model + kind + "; {} reads them"
    if spec.weighted and not entry.weights(spec) and spec.parts == 1:  # or the propagation has read them
        remedy = {"gat": "--edge-term weight", "sage": "--aggregator mean"}.get(
            spec.model, "--model gat --edge-term weight, or gcn, sage, gin or sgc"
        )
        lines.append(what.format("the weights", remedy))
    typed = entry.relational or entry.uses is None or spec.edge_term == "type"
    if spec.edge_types and not typed:
        lines.append(what.format(f"the {spec.edge_types} types", "rgcn, rgat, or --model gat --edge-term type,"))
    if num_edge_features and not spec.edge_features:
        reads = entry.edge_features(spec)
        remedy = "--edge-features file" if reads else "gine, gat without --edge-term, gatv2, transformer or pna"
        lines.append(what.format(f"the {num_edge_features} features", remedy))
    return lines


def register(name: str, self_loops: str = "keep") -> Callable[[type[ConvClass]], type[ConvClass]]:
    """Decorator of a convolution: a class with `__init__(self, d_in, d_out, dtype)` and `forward(self, graph, x)`.

    `--model NAME` is then a stack of them with ReLU, dropout and whatever --norm and --residual say, trained, evaluated
    and saved as any other. graph: nn.graph.Graph; x: own rows (n_p, d_in); the result: (n_p, d_out). self_loops:
    'keep', or 'add' for one loop at every node that has none. Raises ValueError for a name that is taken.

    A class that says `prunable = True` may be asked for fewer rows than it is given: its result then has those of
    graph.own(x), as what graph.aggregate and the like return has (see graph/pruning.py).
    """
    if name in MODELS:
        raise ValueError(f"register: the model {name!r} exists; choose another name than {', '.join(MODELS)}")
    if self_loops not in ("keep", "add"):
        raise ValueError(f"register: expected self_loops to be 'keep' or 'add', got {self_loops!r}")

    def add(conv_class: type[Any]) -> type[ConvClass]:
        # What it inherits was said of another forward.
        conv_class.prunable = vars(conv_class).get("prunable", False)
        conv_class.begin_as = vars(conv_class).get("begin_as")
        # Not in place: what a layer returns may be what its gradient needs.
        build = _stacked(conv_class, torch.relu, hand_over=False)
        MODELS[name] = Entry(build, self_loops, _never, _always, can_drop_bias=False, edge_features=_always)
        return conv_class

    return add


def complete(spec: ModelSpec) -> ModelSpec:
    """The spec with what follows from its model."""
    if spec.jumping != "none" and spec.model in ("sgc", "appnp", "sign"):
        raise ConfigError.on_all(
            f"--jumping {spec.jumping}: {spec.model} has no layers to see at the end; leave it out"
        )
    entry, hidden = MODELS[spec.model], spec.model != "sgc" and (spec.layers > 1 or spec.jumping != "none")
    bare = hidden and spec.norm == "batch" and entry.can_drop_bias
    constant = entry.constant_input(spec) and not spec.changing
    edge_features = spec.edge_features if entry.edge_features(spec) else 0
    return replace(spec, constant_input=constant, hidden_bias=not bare, edge_features=edge_features)
