"""GraphSAGE with the mean (Hamilton et al., NIPS'17, algorithm 1): y = W_n · mean of neighbours + W_s x + b."""

from dataclasses import replace

import torch

from hpcgnn.nn.conv import LinearConv, Weights
from hpcgnn.nn.entry import LINEAR, ModelEntry
from hpcgnn.nn.linear import Linear


class SAGEConv(LinearConv):
    norm = "mean"
    traits = replace(LinearConv.traits, reads_self=True)
    last_biases = ("own",)

    def __init__(self, d_in: int, d_out: int, dtype: torch.dtype | None = None) -> None:
        super().__init__(d_in, d_out)
        self.neighbour = Linear(d_in, d_out, bias=False, dtype=dtype)
        self.own = Linear(d_in, d_out, dtype=dtype)

    def weights(self) -> Weights:
        return self.neighbour.weight, self.own.weight, self.own.bias


MODEL = ModelEntry(lambda spec: SAGEConv, LINEAR)
