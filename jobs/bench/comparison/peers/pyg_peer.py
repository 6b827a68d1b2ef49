"""PyG, full-batch. It takes the adjacency in several forms; each model gets its fastest.

Processor seconds per epoch, two threads, PyG 2.8.1: sage on 169,343 nodes: CSR 11, EdgeIndex 23, edge_index 23. gcn on
20,000 nodes: CSR 1.6, edge_index 4, EdgeIndex 4. gat on 20,000 nodes: all three 6. torch_sparse has no wheel for
current torch, and compiling it takes longer than a comparison.
"""

import itertools

import torch
from torch_geometric.nn import GATConv, GCNConv, SAGEConv

PACKAGES = ("torch_geometric", "torch", "numpy")


def describe(model):
    """The form of the graph that the model gets."""
    return "edge_index (gather and scatter over edges)" if model == "gat" else "torch.sparse CSR"


def prepare(graph, model):
    """The transposed adjacency."""
    nodes = len(graph.indptr) - 1
    indptr, source = torch.from_numpy(graph.indptr), torch.from_numpy(graph.indices)
    if model != "gat":
        return torch.sparse_csr_tensor(indptr, source, torch.ones(len(source)), (nodes, nodes))
    target = torch.repeat_interleave(torch.arange(nodes), indptr.diff())
    return torch.stack([source, target])


def convolutions(model, widths, heads):
    """One convolution per layer. widths: (d_in, hidden, …, classes); of attention, `hidden` is the width of each head.

    The graph comes with its self loops; none are added again, and GCN keeps its normalised adjacency after the first
    epoch.
    """
    pairs = list(itertools.pairwise(widths))
    if model == "sage":
        return [SAGEConv(a, b, aggr="mean") for a, b in pairs]
    if model == "gcn":
        return [GCNConv(a, b, cached=True, add_self_loops=False) for a, b in pairs]
    first = [GATConv(pairs[0][0], widths[1], heads, add_self_loops=False)]
    middle = [GATConv(heads * a, b, heads, add_self_loops=False) for a, b in pairs[1:-1]]
    return [*first, *middle, GATConv(heads * pairs[-1][0], pairs[-1][1], 1, add_self_loops=False)]


def convolve(conv, prepared, x):
    return conv(x, prepared)
