"""PyG: its layers with their own initial weights, on the whole graph and on sampled neighbours."""

import torch
from torch_geometric import nn
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader
from torch_geometric.utils import to_torch_csr_tensor


def layers_of(model, width, classes, options, whole=True):
    """A ModuleList. whole: they are only used on the whole graph."""
    layers = []
    for layer in range(options.layers):
        last = layer == options.layers - 1
        out, heads = (classes, 1) if last else (options.hidden, options.heads if model == "gat" else 1)
        kinds = {"gcn": nn.GCNConv, "sage": nn.SAGEConv, "gat": nn.GATConv}
        more = {"gcn": {"cached": whole}, "sage": {}, "gat": {"heads": heads}}
        layers.append(kinds[model](width, out, **more[model]))
        width = out * heads
    return torch.nn.ModuleList(layers)


def whole_graph(arrays, model):
    """The edges as the layers are fastest with: gcn and sage take a sparse matrix."""
    edges = torch.from_numpy(arrays["edge_index"])
    if model == "gat":
        return edges
    return to_torch_csr_tensor(edges.flip(0), size=(len(arrays["y"]),) * 2)


def convolve(layer, h, graph):
    """The layer's output."""
    return layer(h, graph)


def batches(arrays, model, options):
    """An iterable of (input rows, the graph of each layer, the rows' labels), new ones each time."""
    names = {"x": "x", "edge_index": "edge_index", "y": "y"}
    data = Data(**{name: torch.from_numpy(arrays[array]) for name, array in names.items()})
    given = {"batch_size": options.batch, "shuffle": True, "input_nodes": torch.from_numpy(arrays["train_mask"])}
    loader = NeighborLoader(data, [options.fanout] * options.layers, **given)

    class Batches:
        def __iter__(self):
            for part in loader:
                yield part.x, [part.edge_index] * options.layers, part.y[: part.batch_size]

    return Batches()
