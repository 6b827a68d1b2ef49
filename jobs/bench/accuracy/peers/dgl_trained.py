"""DGL: its layers with their own initial weights, on the whole graph and on sampled neighbours."""

import dgl_peer  # jobs/bench/comparison/peers: how DGL is imported
import torch


def layers_of(model, width, classes, options, whole=True):
    """A ModuleList."""
    hidden = [options.hidden] * (options.layers - 1)
    return torch.nn.ModuleList(dgl_peer.convolutions(model, (width, *hidden, classes), options.heads))


def whole_graph(arrays, model):
    """The graph in all formats; gcn and gat have a self loop at each node."""
    made = dgl_peer.dgl.graph(tuple(torch.from_numpy(arrays["edge_index"])), num_nodes=len(arrays["y"]))
    if model != "sage":
        made = dgl_peer.dgl.add_self_loop(dgl_peer.dgl.remove_self_loop(made))
    made.create_formats_()
    return made


def convolve(layer, h, graph):
    """The layer's output, of a sampled graph for its target nodes."""
    return dgl_peer.convolve(layer, graph, h)


def batches(arrays, model, options):
    """An iterable of (input rows, the graph of each layer, the rows' labels), new ones each time."""
    x, y = torch.from_numpy(arrays["x"]), torch.from_numpy(arrays["y"])
    sampler = dgl_peer.dgl.dataloading.NeighborSampler([options.fanout] * options.layers)
    train, given = torch.from_numpy(arrays["train_mask"]).nonzero()[:, 0], {"batch_size": options.batch}
    loader = dgl_peer.dgl.dataloading.DataLoader(whole_graph(arrays, model), train, sampler, shuffle=True, **given)

    class Batches:
        def __iter__(self):
            for inputs, outputs, blocks in loader:
                yield x[inputs], blocks, y[outputs]

    return Batches()
