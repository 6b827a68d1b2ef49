"""A linear map with Glorot initialisation from counter-based draws; takes dense rows or sparse features."""

import math

import torch
from torch import nn


class Linear(nn.Module):
    """x W + b. weight: (d_in, d_out), so that sparse features gather its rows; bias: (d_out,) or None."""

    def __init__(self, d_in, d_out, bias=True, dtype=None):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(d_in, d_out, dtype=dtype))
        self.bias = nn.Parameter(torch.zeros(d_out, dtype=dtype)) if bias else None

    def forward(self, x):
        y = x @ self.weight
        return y if self.bias is None else y + self.bias


def initialise(model, random):
    """Glorot-uniform weights (Glorot and Bengio, AISTATS'10, eq. 16), zero biases; the same on every rank for a
    seed.
    """
    linears = [module for module in model.modules() if isinstance(module, Linear)]
    for index, linear in enumerate(linears):
        with torch.no_grad():
            bound = math.sqrt(6 / sum(linear.weight.shape))
            linear.weight.copy_((2 * random.uniform(linear.weight.shape, index) - 1) * bound)
