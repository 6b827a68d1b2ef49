"""MeshGraphNets (Pfaff et al., ICLR'21, arXiv 2010.03409): an encoder, processors on nodes and edges, a decoder.

    e'_ij = e_ij + MLP([x_j, x_i, e_ij])        x'_i = x_i + MLP([x_i, Σ_j e'_ij])        of an edge j -> i

The edges begin with Δ = p_j − p_i of positions, |Δ|, and the file's features of edges where there are any. The first
product of an edge is split: those of x_j and x_i are made once for a node. So a halo row costs `hidden` numbers
forwards, twice as many backwards. The rows of edges never travel: a rank has all in-edges of its nodes. Of a layer they
are kept once; hidden rows exist for a tile.
"""

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import nn

from hpcgnn.extras.meshes.mapped_rows import map_rows, products
from hpcgnn.extras.meshes.perceptron import ACTIVATIONS, Part, Perceptron
from hpcgnn.extras.meshes.remade_layers import remade_layers
from hpcgnn.nn.entry import ModelEntry
from hpcgnn.nn.graph import Graph
from hpcgnn.nn.model import Model
from hpcgnn.nn.spec import ModelSpec
from hpcgnn.option_fields import flag, option
from hpcgnn.options.model import ModelConfig
from hpcgnn.plan.run_plan import RunPlan
from hpcgnn.schedules.base import CHANGING_EDGES
from hpcgnn.traits import LayerTraits


@dataclass(frozen=True, kw_only=True)
class MeshGraphNetConfig(ModelConfig):
    """The options of the model's perceptrons."""

    mlp_layers: int = option(
        2, "meshgraphnet: hidden layers of each perceptron", least=1, by_model=True, on_resume="same"
    )
    activation: str = option(
        "relu",
        "meshgraphnet: activation of the perceptrons",
        choices=tuple(ACTIVATIONS),
        by_model=True,
        on_resume="same",
    )
    kept_states: int = option(
        0,
        "meshgraphnet: states of layers that are kept at a time; 0: all",
        details="The gradient makes the others again. Results do not change.",
        least=0,
        by_model=True,
    )
    edge_states: str = option(
        "updated",
        "meshgraphnet: a layer reads updated edges, or encoded ones",
        details="encoded: as in Dist-GNN of nekRS-ML; one matrix of edges is kept for all layers.",
        choices=("updated", "encoded"),
        by_model=True,
        on_resume="same",
    )


def perceptron(spec: ModelSpec, d_in: int, d_out: int, norm: bool = True) -> Perceptron:
    """A Perceptron of the model. d_in: of all parts together."""
    options = cast(MeshGraphNetConfig, spec.options)
    widths = [d_in, *[options.hidden] * options.mlp_layers, d_out]
    return Perceptron(widths, options.activation, spec.dtype, norm)


class Processor(nn.Module):
    """A layer: forward(graph, x (n_p, hidden), e (E_p, hidden)) -> (x', e'). Collective.

    Weights of the first maps are of the source, the destination and the edge, and of the node and the sum.
    """

    traits = LayerTraits(edges=("all", "positions"))
    last_biases = ()

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.width = width = spec.options.hidden
        self.updates = cast(MeshGraphNetConfig, spec.options).edge_states == "updated"
        self.edge, self.node = perceptron(spec, 3 * width, width), perceptron(spec, 2 * width, width)

    def forward(self, graph: Graph, x: torch.Tensor, e: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        source, target, _ = self.edge.first.weight.split(self.width)
        of_edge = self.edge.rows(graph.arena, Part(), Part(), Part(slice(2 * self.width, None), added=True))
        x, of_source, of_target = products(graph.arena, x, source, target, self.edge.first.bias)
        ends: dict[str, Any] = {"x_src": of_source, "x_dst": of_target}
        if self.updates:
            e, y = graph.update_edges(of_edge, **ends, edge=e)
        else:
            e, y = graph.propagate_shared(of_edge, **ends, edge=e)
        of_node = self.node.rows(graph.arena, Part(slice(self.width), added=True), Part(slice(self.width, None)))
        return map_rows(graph.arena, of_node, x, y), e


class MeshGraphNet(Model):
    """forward(graph) -> (n_p, C). Collective."""

    def __init__(self, layer: type[Processor], spec: ModelSpec) -> None:
        width, layers = spec.options.hidden, spec.options.layers
        # Others than a layer's norms are unknown to the model.
        plain = replace(spec, options=replace(spec.options, norm="none", residual=False))
        super().__init__(plain, [layer(spec) for _ in range(layers)], [width] * layers)
        # Nobody reads the edges behind the last layer. Their sums are the same.
        cast(Processor, self.convs[-1]).updates = False
        self.node_encoder = perceptron(spec, spec.d_in, width)
        self.edge_encoder = perceptron(spec, spec.dimensions + 1 + spec.edge_features, width)
        self.decoder = perceptron(spec, width, spec.classes, norm=False)

    def forward(self, whole: Graph) -> torch.Tensor:
        first = self.node_encoder.first(whole.constant_rows(whole.features, 0.0, 0))
        x = map_rows(whole.arena, self.node_encoder.rows(whole.arena, Part()), first)
        inputs = whole.constant("edge inputs", lambda: edge_inputs(whole, first.dtype))

        def encoded(x: torch.Tensor, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x, self.edge_encoder.map(whole.arena, rows)

        def run(number: int, *state: torch.Tensor) -> Any:
            # A layer that runs again rounds the halo as before.
            return self.convs[number](whole.from_call(number + 1), *state)

        each = (functools.partial(run, number) for number in range(len(self.convs)))
        layers: list[Callable[..., Any]] = [encoded, *each]
        most = cast(MeshGraphNetConfig, self.spec.options).kept_states
        if most:
            x, _ = remade_layers(layers, most, x, inputs)
        else:
            for layer in layers:
                x, inputs = layer(x, inputs)
        return self.decoder.map(whole.arena, x)

    @property
    def prunable_layers(self) -> int:
        return 0

    @property
    def is_local(self) -> bool:
        return False


def edge_inputs(graph: Graph, dtype: torch.dtype) -> torch.Tensor:
    """Δ, |Δ| and the features of each in-edge: (E_p, D + 1 + F_e). Collective."""

    def of_ends(source: torch.Tensor, target: torch.Tensor, *features: torch.Tensor) -> torch.Tensor:
        apart = source - target
        return torch.cat([apart.to(dtype), apart.norm(dim=1, keepdim=True).to(dtype), *features], 1)

    rows, _ = graph.update_edges(of_ends, x_src=graph.position, x_dst=graph.position, edge=graph.edge_features)
    return rows


MODEL = ModelEntry(
    lambda spec: Processor, ("hidden", "mlp_layers", "activation", "edge_states", "kept_states"), MeshGraphNet
)


def rule(of: RunPlan) -> Iterator[str]:
    """Options that the model has no use for."""
    config = of.config
    given = {
        f"--schedule {config.schedule.schedule}": not of.schedule.exact_epochs,
        f"--dropout {config.model.dropout}": config.model.dropout not in (0.0, ModelConfig().dropout),
        "--inductive": config.data.inductive,
        **{flag(name): each.applies(config) for name, each in CHANGING_EDGES.items()},
    }
    for name in (name for name, used in given.items() if used and of.model is MODEL):
        yield (
            f"{name} is not for --model {config.model.model}, which keeps inputs of all edges and drops nothing; leave "
            "it out"
        )


def needs_positions(of: RunPlan) -> Iterator[str]:
    """Graphs without positions."""
    if "positions" in of.layers.edges and not of.spec.dimensions:
        yield (
            f"--model {of.config.model.model} reads positions of nodes: expected a graph file with /nodes/position, "
            f"got {of.config.data.graph}; import the graph with positions"
        )
