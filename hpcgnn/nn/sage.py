"""GraphSAGE, mean aggregator (Hamilton et al., NIPS'17, algorithm 1): y = W_n · mean of in-neighbours + W_s x + b."""

from dataclasses import replace

import torch

from hpcgnn.nn.conv import LinearConv, Weights
from hpcgnn.nn.linear import Linear


class SAGEConv(LinearConv):
    norm = "mean"
    traits = replace(LinearConv.traits, reads_self=True)

    def __init__(self, d_in: int, d_out: int, dtype: torch.dtype | None = None) -> None:
        super().__init__(d_in, d_out)
        self.neighbour = Linear(d_in, d_out, bias=False, dtype=dtype)
        self.own = Linear(d_in, d_out, dtype=dtype)

    def drop_bias(self) -> None:
        self.own.bias = None

    def weights(self) -> Weights:
        return self.neighbour.weight, self.own.weight, self.own.bias
