"""Scalable inception graph neural networks (Frasca et al., arXiv 2004.11198, 2020, the model "SIGN"):

    Z = σ([X Θ_0, A_1 X Θ_1, …, A_r X Θ_r])        Y = ξ(Z Ω)

The A_k X are columns of the graph file already (`hpcgnn propagate`). So each node is seen by itself, and training sends
no graph data. σ is relu; Z Ω is a layer like appnp's, and more such layers make Ω a perceptron.
"""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import torch
from torch import nn

from hpcgnn.nn.appnp import OwnLayer
from hpcgnn.nn.entry import ModelEntry
from hpcgnn.nn.graph import Graph
from hpcgnn.nn.linear import Linear
from hpcgnn.nn.model import Model
from hpcgnn.nn.spec import ModelSpec
from hpcgnn.ops.layer_input import Input
from hpcgnn.traits import LayerTraits


class HopsLayer(nn.Module):
    """The first layer: a linear map of each of the groups of columns, joined. widths: of the groups."""

    traits = LayerTraits(self_loops="add", neighbours="none", edges=())

    def __init__(self, widths: Sequence[int], d_out: int, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.d_in, self.d_out, self._widths = sum(widths), d_out, list(widths)
        self.linears = nn.ModuleList(Linear(width, d_out // len(widths), dtype=dtype) for width in widths)

    def drop_bias(self) -> None:
        """As of any layer."""
        for linear in self.linears:
            cast(Linear, linear).bias = None

    def forward(self, graph: Graph, x: Input) -> torch.Tensor:
        """Own rows x (n_p, d_in) -> (n_p, d_out)."""
        if not isinstance(x, torch.Tensor):  # sparse features come in one part
            return self.linears[0](x)
        return torch.cat([linear(part) for linear, part in zip(self.linears, x.split(self._widths, 1), strict=True)], 1)


def _build(spec: ModelSpec) -> Model:
    widths = spec.widths
    layers: list[OwnLayer | HopsLayer] = [OwnLayer(a, b, spec.dtype) for a, b in itertools.pairwise(widths)]
    if spec.layers > 1:  # a single one is a linear map of all columns
        parts = spec.part_widths or (widths[0] // spec.parts,) * spec.parts
        layers[0] = HopsLayer(parts, widths[1], spec.dtype)
    return Model(replace(spec, residual=False), layers, widths[1:-1])


MODEL = ModelEntry(_build, lambda spec: HopsLayer, ("hidden", "norm"), reads_hops=True)
