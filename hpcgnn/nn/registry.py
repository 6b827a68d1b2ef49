"""The models that `--model` offers, and how others are added: `register`, in a file given as `--plugin`."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import torch

from hpcgnn.errors import ConfigError
from hpcgnn.nn import appnp, gat, gatv2, gcn, gin, pna, rgcn, sage, transformer
from hpcgnn.nn.entry import ModelEntry, stacked
from hpcgnn.nn.spec import ModelSpec
from hpcgnn.registry import Registry
from hpcgnn.traits import LayerTraits

ConvClass = TypeVar("ConvClass", bound=torch.nn.Module)
MODELS: Registry[ModelEntry] = Registry("model")
for _name, _entry in {  # in the order of `--help`
    "gcn": gcn.MODEL,
    "sage": sage.MODEL,
    "gin": gin.MODEL,
    "sgc": gcn.SGC,
    "appnp": appnp.MODEL,
    "gat": gat.MODEL,
    "gatv2": gatv2.MODEL,
    "transformer": transformer.MODEL,
    "rgcn": rgcn.MODEL,
    "rgat": rgcn.RGAT,
    "pna": pna.MODEL,
    "gine": gin.GINE,
}.items():
    MODELS.register(_name, _entry)


def ignored(spec: ModelSpec, num_edge_features: int) -> list[str]:
    """A line for each of weights, types and features of edges that the graph has and the model does not read.

    num_edge_features: of the graph.
    """
    model, lines = spec.options.model, list[str]()
    entry, what = MODELS[model], f"{{}} of this graph's edges are ignored by --model {model}; {{}} reads them"
    traits = entry.traits(spec)
    if traits.neighbours == "none":  # the model ignores all edges
        return lines
    if spec.weighted and "weights" not in traits.edges:
        lines.append(what.format("the weights", "gcn, sage, gin or sgc"))
    if spec.edge_types and not traits.relational and entry.uses is not None:
        lines.append(what.format(f"the {spec.edge_types} types", "rgcn or rgat"))
    if num_edge_features and not spec.edge_features:
        reads = entry.reads_edge_features(spec)
        remedy = "--edge-features file" if reads else "gine, gat, gatv2, transformer or pna"
        lines.append(what.format(f"the {num_edge_features} features", remedy))
    return lines


def register(name: str, self_loops: str = "keep") -> Callable[[type[ConvClass]], type[ConvClass]]:
    """Decorate a convolution: a class with `__init__(self, d_in, d_out, dtype)` and `forward(self, graph, x)`.

    `--model NAME` is then a stack of them with ReLU, dropout and the options --norm and --residual, trained, evaluated
    and saved as any other. graph: nn.graph.Graph; x: owned rows (n_p, d_in); the result: (n_p, d_out). A class with
    `prunable = True` may be asked for fewer rows than its input has. Its result then has the rows of graph.own(x), like
    the results of graph.aggregate and others (see graph/transforms/pruning.py).

    Args:
        name: name of the model.
        self_loops: 'keep', or 'add' for one loop at every node that has none.

    Raises:
        ValueError: the name is taken.
    """
    if self_loops not in ("keep", "add"):
        raise ValueError(f"register: expected self_loops to be 'keep' or 'add', got {self_loops!r}")

    def add(conv_class: type[Any]) -> type[ConvClass]:
        # An inherited `prunable` describes another forward.
        prunable = vars(conv_class).get("prunable", False)
        conv_class.traits = LayerTraits(self_loops=self_loops, edges=("weights", "all"), prunable=prunable)
        # Not in place: a layer's gradient may need its output.
        make = partial(stacked, activation=torch.relu, hand_over=False)
        MODELS.register(name, ModelEntry(lambda spec: conv_class, None, make))
        return conv_class

    return add


def complete(spec: ModelSpec) -> ModelSpec:
    """Return the spec completed with the facts that its model implies."""
    options, entry = spec.options, MODELS[spec.options.model]
    if options.jumping != "none" and "jumping" not in (entry.uses or ("jumping",)):
        raise ConfigError.on_all(
            f"--jumping {options.jumping}: {options.model} has no layers to see at the end; leave it out"
        )
    edge_features = spec.edge_features if entry.reads_edge_features(spec) else 0
    spec = replace(spec, edge_features=edge_features, stacked=entry.stacked)
    traits, hidden = entry.traits(spec), entry.stacked and (options.layers > 1 or options.jumping != "none")
    bare = hidden and options.norm == "batch" and entry.uses is not None
    constant = traits.neighbours == "sums" and not spec.changing
    return replace(spec, constant_input=constant, hidden_bias=not bare)
