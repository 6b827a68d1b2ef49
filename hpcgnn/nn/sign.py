"""Scalable inception graph neural networks (Frasca et al., arXiv 2004.11198, 2020, the model "SIGN"):

    Z = σ([X Θ_0, A_1 X Θ_1, …, A_r X Θ_r])        Y = ξ(Z Ω)

The A_k X are columns of the graph file already (`hpcgnn propagate`). So each node is seen by itself, and training sends
no graph data. σ is relu; Z Ω is a layer like appnp's, and more such layers make Ω a perceptron.

With `--hop-attention` the first layer is that of SAGN (Sun, Gu, Hu, arXiv 2104.09376, 2021) with one head: Σ_k α_k A_k
X Θ_k, where α is the softmax over k of LeakyReLU(a·X Θ_0 + b·A_k X Θ_k), by node.
"""

import itertools
from dataclasses import replace
from typing import cast

import torch
from torch import nn
from torch.nn.functional import leaky_relu

from hpcgnn.nn.appnp import OwnLayer
from hpcgnn.nn.entry import ModelEntry
from hpcgnn.nn.graph import DroppedRows, Graph
from hpcgnn.nn.linear import Linear
from hpcgnn.nn.model import Model
from hpcgnn.nn.spec import ModelSpec
from hpcgnn.traits import LayerTraits


class HopsLayer(nn.Module):
    """The first layer: a linear map of each of `parts` groups of columns, joined."""

    traits = LayerTraits(self_loops="add", input_rows="never", weights=False, local=True)

    def __init__(self, d_in: int, d_out: int, parts: int, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.d_in, self.d_out = d_in, d_out
        self.linears = nn.ModuleList(Linear(d_in // parts, d_out // parts, dtype=dtype) for _ in range(parts))

    def drop_bias(self) -> None:
        """As of any layer."""
        for linear in self.linears:
            cast(Linear, linear).bias = None

    def forward(self, graph: Graph, x: torch.Tensor | DroppedRows) -> torch.Tensor:
        """Own rows x (n_p, d_in) -> (n_p, d_out)."""
        if not isinstance(x, torch.Tensor):  # sparse features come in one part
            return self.linears[0](x)
        return torch.cat(
            [linear(part) for linear, part in zip(self.linears, x.chunk(len(self.linears), 1), strict=True)], 1
        )


class HopAttention(HopsLayer):
    """The first layer: the sum of linear maps of the groups of columns, with learned weights by node."""

    def __init__(self, d_in: int, d_out: int, parts: int, dtype: torch.dtype | None = None) -> None:
        super().__init__(d_in, d_out * parts, parts, dtype)
        self.d_out = d_out
        self.scores = Linear(d_out, 2, bias=False, dtype=dtype)

    def forward(self, graph: Graph, x: torch.Tensor | DroppedRows) -> torch.Tensor:
        """Own rows x (n_p, d_in) -> (n_p, d_out)."""
        hops = super().forward(graph, x).unflatten(1, (len(self.linears), self.d_out))
        scores: torch.Tensor = hops @ self.scores.weight
        weights = leaky_relu(scores[:, :1, 0] + scores[:, :, 1], 0.2).softmax(1)
        return (weights.unsqueeze(1) @ hops).squeeze(1)


def _build(spec: ModelSpec) -> Model:
    widths = spec.widths
    layers: list[OwnLayer | HopsLayer] = [OwnLayer(a, b, spec.dtype) for a, b in itertools.pairwise(widths)]
    if spec.layers > 1:  # a single one is a linear map of all columns
        layers[0] = (HopAttention if spec.hop_attention else HopsLayer)(widths[0], widths[1], spec.parts, spec.dtype)
    return Model(replace(spec, residual=False), layers, widths[1:-1])


MODEL = ModelEntry(_build, lambda spec: HopsLayer, ("hidden", "norm", "hop_attention"), reads_hops=True)
