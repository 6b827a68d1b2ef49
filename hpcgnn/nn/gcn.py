"""Graph convolution (Kipf and Welling, ICLR'17): y = D^-1/2 A D^-1/2 x W + b, where A has the self loops."""

from dataclasses import replace

import torch

from hpcgnn.nn.conv import LinearConv, Weights
from hpcgnn.nn.entry import LINEAR, ModelEntry, stacked
from hpcgnn.nn.linear import Linear
from hpcgnn.nn.spec import ModelSpec


class GCNConv(LinearConv):
    norm = "sym"
    traits = replace(LinearConv.traits, self_loops="add")

    def __init__(self, d_in: int, d_out: int, dtype: torch.dtype | None = None) -> None:
        super().__init__(d_in, d_out)
        self.linear = Linear(d_in, d_out, dtype=dtype, start="glorot")

    def drop_bias(self) -> None:
        self.linear.bias = None

    def weights(self) -> Weights:
        return self.linear.weight, None, self.linear.bias


class ResidualGCNConv(GCNConv):
    """With a linear map of the own row beside the convolution (`--linear-residual`): one operator, as SAGE's."""

    traits = replace(GCNConv.traits, reads_self=True)

    def __init__(self, d_in: int, d_out: int, dtype: torch.dtype | None = None) -> None:
        super().__init__(d_in, d_out, dtype)
        self.own = Linear(d_in, d_out, bias=False, dtype=dtype)

    def weights(self) -> Weights:
        return self.linear.weight, self.own.weight, self.linear.bias


def _layer(spec: ModelSpec) -> type[GCNConv]:
    return ResidualGCNConv if spec.linear_residual else GCNConv


MODEL = ModelEntry(lambda spec: stacked(_layer(spec))(spec), _layer, (*LINEAR, "linear_residual"))
