"""Scalable inception graph neural networks (Frasca et al., arXiv 2004.11198, 2020, the model "SIGN"):

    Z = σ([X Θ_0, A_1 X Θ_1, …, A_r X Θ_r])        Y = ξ(Z Ω)

The A_k X are columns of the graph file already (`hpcgnn propagate`). So each node is seen by itself, and training sends
no graph data. σ is relu; Z Ω is a layer like appnp's, and more such layers make Ω a perceptron.

With `--hop-attention` the first layer is a sum with weights by node: Σ_k α_k H_k, where H_k = A_k X Θ_k and α is the
softmax over k of LeakyReLU(a·R_k + b·H_k). R_k is by its value:

    first       H_0, as of SAGN (Sun, Gu, Hu, arXiv 2104.09376, 2021) with one head
    recursive   the hops before, Σ_{i<k} β_i H_i with the softmax β of their scores, and R_0 = H_0
    jk          ReLU([H_0, …, H_r] Θ), a map of all hops

The last two are those of GAMLP (Zhang et al., KDD'22).
"""

import itertools
from collections.abc import Sequence
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

_SLOPE = 0.2


class HopsLayer(nn.Module):
    """The first layer: a linear map of each of the groups of columns, joined. widths: of the groups."""

    traits = LayerTraits(self_loops="add", input_rows="never", weights=False, local=True)

    def __init__(self, widths: Sequence[int], d_out: int, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.d_in, self.d_out, self._widths = sum(widths), d_out, list(widths)
        self.linears = nn.ModuleList(Linear(width, d_out // len(widths), dtype=dtype) for width in widths)

    def drop_bias(self) -> None:
        """As of any layer."""
        for linear in self.linears:
            cast(Linear, linear).bias = None

    def forward(self, graph: Graph, x: torch.Tensor | DroppedRows) -> torch.Tensor:
        """Own rows x (n_p, d_in) -> (n_p, d_out)."""
        if not isinstance(x, torch.Tensor):  # sparse features come in one part
            return self.linears[0](x)
        return torch.cat([linear(part) for linear, part in zip(self.linears, x.split(self._widths, 1), strict=True)], 1)


class HopAttention(HopsLayer):
    """The first layer: the sum of linear maps of the groups of columns, with learned weights by node."""

    def __init__(self, widths: Sequence[int], d_out: int, dtype: torch.dtype | None = None) -> None:
        super().__init__(widths, d_out * len(widths), dtype)
        self.d_out = d_out
        self.scores = Linear(d_out, 2, bias=False, dtype=dtype)

    def forward(self, graph: Graph, x: torch.Tensor | DroppedRows) -> torch.Tensor:
        """Own rows x (n_p, d_in) -> (n_p, d_out)."""
        hops = super().forward(graph, x).unflatten(1, (len(self.linears), self.d_out))
        return _sum(self.weigh(hops, hops @ self.scores.weight).softmax(1), hops)

    def weigh(self, hops: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """The logits (n_p, K) of the weights. hops: (n_p, K, d_out); scores: (n_p, K, 2), a·H_k and b·H_k."""
        return leaky_relu(scores[:, :1, 0] + scores[:, :, 1], _SLOPE)


class RecursiveAttention(HopAttention):
    """Each hop is compared with the weighted sum of those before."""

    def weigh(self, hops: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """As above. a·Σ β_i H_i is Σ β_i a·H_i, so the sums themselves are not made."""
        logits = [leaky_relu(scores[:, 0].sum(1), _SLOPE)]
        for hop in range(1, hops.shape[1]):
            before = (torch.stack(logits, 1).softmax(1) * scores[:, :hop, 0]).sum(1)
            logits.append(leaky_relu(before + scores[:, hop, 1], _SLOPE))
        return torch.stack(logits, 1)


class JumpingAttention(HopAttention):
    """Each hop is compared with a map of all."""

    def __init__(self, widths: Sequence[int], d_out: int, dtype: torch.dtype | None = None) -> None:
        super().__init__(widths, d_out, dtype)
        self.reference = Linear(d_out * len(widths), d_out, dtype=dtype)

    def weigh(self, hops: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """As above."""
        reference = torch.relu(self.reference(hops.flatten(1)))
        return leaky_relu((reference @ self.scores.weight)[:, :1] + scores[:, :, 1], _SLOPE)


def _sum(weights: torch.Tensor, hops: torch.Tensor) -> torch.Tensor:
    return (weights.unsqueeze(1) @ hops).squeeze(1)


#: The first layer by `--hop-attention`.
FIRST: dict[str, type[HopsLayer]] = {
    "none": HopsLayer,
    "first": HopAttention,
    "recursive": RecursiveAttention,
    "jk": JumpingAttention,
}


def _build(spec: ModelSpec) -> Model:
    widths = spec.widths
    layers: list[OwnLayer | HopsLayer] = [OwnLayer(a, b, spec.dtype) for a, b in itertools.pairwise(widths)]
    if spec.layers > 1:  # a single one is a linear map of all columns
        parts = spec.part_widths or (widths[0] // spec.parts,) * spec.parts
        layers[0] = FIRST[spec.hop_attention](parts, widths[1], spec.dtype)
    return Model(replace(spec, residual=False), layers, widths[1:-1])


MODEL = ModelEntry(_build, lambda spec: HopsLayer, ("hidden", "norm", "hop_attention"), reads_hops=True)
