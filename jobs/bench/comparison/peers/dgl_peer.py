"""DGL, full-batch, as its documentation does it: message passing on a graph whose sparse formats exist beforehand.

DGL 2.1.0 is the last wheel that is published. Its graphbolt part is a native library for older releases of torch and
does not load with a current one. Full-batch training does not use it, so an empty module stands in its place.
"""

import itertools
import os
import sys
import types

os.environ["DGLBACKEND"] = "pytorch"
_absent = types.ModuleType("dgl.graphbolt")
_absent.__path__ = []
sys.modules.setdefault("dgl.graphbolt", _absent)

import dgl
import torch
from dgl.nn.pytorch import GATConv, GraphConv, SAGEConv

PACKAGES = ("dgl", "torch", "numpy")


def describe(model):
    """The form of the graph that the model gets."""
    return "dgl.graph with COO, CSR and CSC made beforehand"


def prepare(graph, model):
    """The graph in all formats that forward and backward read."""
    source, indptr = torch.from_numpy(graph.indices), torch.from_numpy(graph.indptr)
    nodes = len(indptr) - 1
    # From pairs, not from CSC: DGL's attention fails on a graph made from CSC without numbered edges.
    made = dgl.graph((source, torch.repeat_interleave(torch.arange(nodes), indptr.diff())), num_nodes=nodes)
    made.create_formats_()
    return made


def convolutions(model, widths, heads):
    """One convolution per layer. widths: (d_in, hidden, …, classes); of attention, `hidden` is the width of each
    head.
    """
    pairs = list(itertools.pairwise(widths))
    if model == "sage":
        return [SAGEConv(a, b, "mean") for a, b in pairs]
    if model == "gcn":
        return [GraphConv(a, b, norm="both") for a, b in pairs]
    first = [GATConv(pairs[0][0], widths[1], heads)]
    middle = [GATConv(heads * a, b, heads) for a, b in pairs[1:-1]]
    return [*first, *middle, GATConv(heads * pairs[-1][0], pairs[-1][1], 1)]


def convolve(conv, prepared, x):
    y = conv(prepared, x)
    return y.flatten(1) if y.dim() == 3 else y
