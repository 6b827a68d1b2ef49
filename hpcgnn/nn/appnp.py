"""Predict, then propagate (Gasteiger et al., ICLR'19, eqs. 4 and 5).

Layers that see their own node alone come first. K hops of personalised PageRank over their outputs follow, z ← (1 − α)
D^-1/2 A D^-1/2 z + α h. Rows that travel are as wide as the classes, whatever the hidden layers. A hop saves no tensors
for its gradient: it is the same sum along the out-edges.
"""

import itertools
from dataclasses import replace

import torch
from torch import nn

from hpcgnn.nn.entry import ModelEntry
from hpcgnn.nn.graph import Graph
from hpcgnn.nn.linear import Linear
from hpcgnn.nn.model import Model
from hpcgnn.nn.spec import ModelSpec
from hpcgnn.ops.layer_input import Input
from hpcgnn.traits import LayerTraits


class OwnLayer(nn.Module):
    """x W + b of own rows."""

    traits = LayerTraits(self_loops="add", neighbours="none", input="product")
    last_biases = ("linear",)

    def __init__(self, d_in: int, d_out: int, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.d_in, self.d_out = d_in, d_out
        self.linear = Linear(d_in, d_out, dtype=dtype)

    def forward(self, graph: Graph, x: Input) -> torch.Tensor:
        """Own rows x (n_p, d_in) -> (n_p, d_out)."""
        return self.linear(x)


class PropagatedLayer(OwnLayer):
    """The last layer, whose outputs are propagated. hops: K; teleport: α."""

    norm = "sym"
    traits = replace(OwnLayer.traits, neighbours="hops")

    def __init__(self, d_in: int, d_out: int, hops: int, teleport: float, dtype: torch.dtype | None = None) -> None:
        super().__init__(d_in, d_out, dtype)
        self.hops, self.teleport = hops, teleport
        if hops == 0:
            self.traits = OwnLayer.traits

    def forward(self, graph: Graph, x: Input) -> torch.Tensor:
        """Own rows x (n_p, d_in) -> (n_p, d_out). Collective."""
        h = z = super().forward(graph, x)
        for _ in range(self.hops):
            z = graph.aggregate(z, self.norm).mul_(1 - self.teleport).add_(h, alpha=self.teleport)
        return z


def _build(layer: type[PropagatedLayer], spec: ModelSpec) -> Model:
    widths = spec.widths
    layers = [OwnLayer(a, b, spec.dtype) for a, b in itertools.pairwise(widths[:-1])]
    layers.append(layer(widths[-2], widths[-1], spec.options.hops, spec.options.teleport, spec.dtype))
    return Model(spec, layers, widths[1:-1])


MODEL = ModelEntry(lambda spec: PropagatedLayer, ("hidden", "norm", "residual", "hops", "teleport"), _build)
