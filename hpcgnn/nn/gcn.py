"""Graph convolution (Kipf and Welling, ICLR'17): y = D^-1/2 A D^-1/2 x W + b, where A has the self loops.

Simplified graph convolution (`SGCConv`; Wu et al., ICML'19, eq. 8): y = (D^-1/2 A D^-1/2)^K x W + b, one linear layer
after K hops.
"""

from dataclasses import replace

import torch

from hpcgnn.nn.conv import Conv, LinearConv, weights_of
from hpcgnn.nn.entry import LINEAR, ModelEntry
from hpcgnn.nn.graph import Graph
from hpcgnn.nn.linear import Linear
from hpcgnn.nn.model import Model
from hpcgnn.nn.spec import ModelSpec
from hpcgnn.traits import LayerTraits


class GCNConv(LinearConv):
    norm = "sym"
    traits = replace(LinearConv.traits, self_loops="add")
    weights = weights_of("linear.weight", None, "linear.bias")

    def __init__(self, d_in: int, d_out: int, dtype: torch.dtype | None = None) -> None:
        super().__init__(d_in, d_out)
        self.linear = Linear(d_in, d_out, dtype=dtype, start="glorot")


class ResidualGCNConv(GCNConv):
    """With a linear map of the own row beside the convolution (`--linear-residual`): one operator, as SAGE's."""

    traits = replace(GCNConv.traits, reads_self=True)
    weights = weights_of("linear.weight", "own.weight", "linear.bias")

    def __init__(self, d_in: int, d_out: int, dtype: torch.dtype | None = None) -> None:
        super().__init__(d_in, d_out, dtype)
        self.own = Linear(d_in, d_out, bias=False, dtype=dtype)


def _layer(spec: ModelSpec) -> type[GCNConv]:
    return ResidualGCNConv if spec.options.linear_residual else GCNConv


MODEL = ModelEntry(_layer, (*LINEAR, "linear_residual"))


class SGCConv(Conv):
    norm = "sym"
    traits = LayerTraits(
        self_loops="add",
        neighbours="sums",
        reads_self=False,
        input="product",
    )
    weights = weights_of("linear.weight", None, "linear.bias")

    def __init__(self, d_in: int, d_out: int, hops: int, dtype: torch.dtype | None = None) -> None:
        super().__init__(d_in, d_out)
        self.hops = hops
        self.linear = Linear(d_in, d_out, dtype=dtype)

    def gather(self, graph: Graph, x: torch.Tensor) -> torch.Tensor:
        for _ in range(self.hops):
            x = graph.aggregate(x, self.norm)
        return x


def _one_map(layer: type[SGCConv], spec: ModelSpec) -> Model:
    return Model(spec, [layer(spec.d_in, spec.classes, spec.options.layers, dtype=spec.dtype)], [])


SGC = ModelEntry(lambda spec: SGCConv, ("keep_input",), _one_map, stacked=False)
