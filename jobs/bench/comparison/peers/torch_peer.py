"""Bare torch: its own sparse products and nothing else. The difference of a peer to torch, in speed and memory, shows
against it.

Runs in the project's own environment. Attention has no counterpart here.
"""

import itertools

import torch

PACKAGES = ("torch", "numpy")
MODELS = ("sage", "gcn")


def describe(model):
    """The form of the graph that the model gets. SystemExit for a model that torch lacks."""
    if model not in MODELS:
        raise SystemExit(f"error: bare torch has no {model}; expected one of {', '.join(MODELS)}")
    return "torch.sparse CSR, and its transpose for the gradient"


class Product(torch.autograd.Function):
    """A x, with the gradient by a transpose that was made beforehand."""

    @staticmethod
    def forward(ctx, adjacency, transposed, x):
        ctx.transposed = transposed
        return adjacency @ x

    @staticmethod
    def backward(ctx, gradient):
        return None, None, ctx.transposed @ gradient


class Convolution(torch.nn.Module):
    """A x W + b, and x W' for the nodes themselves if `own`; the narrower side is aggregated."""

    def __init__(self, d_in, d_out, own):
        super().__init__()
        self.neighbour = torch.nn.Linear(d_in, d_out)
        self.own = torch.nn.Linear(d_in, d_out, bias=False) if own else None

    def forward(self, matrices, x):
        if self.neighbour.out_features < self.neighbour.in_features:
            y = Product.apply(*matrices, x @ self.neighbour.weight.T) + self.neighbour.bias
        else:
            y = self.neighbour(Product.apply(*matrices, x))
        return y if self.own is None else y + self.own(x)


def prepare(graph, model):
    """(A, its transpose): rows divided by their degree for sage, D^-1/2 A D^-1/2 for gcn."""
    indptr, indices = torch.from_numpy(graph.indptr), torch.from_numpy(graph.indices)
    nodes, degree = len(indptr) - 1, indptr.diff()
    row = torch.repeat_interleave(torch.arange(nodes), degree)
    by_row = 1.0 / degree.clamp(min=1).float()
    if model == "gcn":
        by_row = by_row.sqrt()
        by_column = 1.0 / torch.bincount(indices, minlength=nodes).clamp(min=1).float().sqrt()
        values = by_row[row] * by_column[indices]
    else:
        values = by_row[row]
    adjacency = torch.sparse_csr_tensor(indptr, indices, values, (nodes, nodes))
    return adjacency, adjacency.transpose(0, 1).to_sparse_csr()


def convolutions(model, widths, heads):
    return [Convolution(a, b, own=model == "sage") for a, b in itertools.pairwise(widths)]


def convolve(conv, prepared, x):
    return conv(prepared, x)
