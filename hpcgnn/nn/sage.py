"""GraphSAGE with the mean (Hamilton et al., NIPS'17, algorithm 1): y = W_n · mean of neighbours + W_s x + b."""

from dataclasses import replace

import torch

from hpcgnn.nn.conv import LinearConv, weights_of
from hpcgnn.nn.entry import LINEAR, ModelEntry
from hpcgnn.nn.linear import Linear


class SAGEConv(LinearConv):
    norm = "mean"
    traits = replace(LinearConv.traits, reads_self=True)
    last_biases = ("own",)
    weights = weights_of("neighbour.weight", "own.weight", "own.bias")

    def __init__(self, d_in: int, d_out: int, dtype: torch.dtype | None = None) -> None:
        super().__init__(d_in, d_out)
        self.neighbour = Linear(d_in, d_out, bias=False, dtype=dtype)
        self.own = Linear(d_in, d_out, dtype=dtype)


MODEL = ModelEntry(lambda spec: SAGEConv, LINEAR)
