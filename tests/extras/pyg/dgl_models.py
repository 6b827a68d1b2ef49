"""Makes dgl-models.npz: small models that DGL 2.1.0 itself trained, their graph, weights and outputs.

    python tests/extras/pyg/dgl_models.py    # where DGL can be imported (jobs/bench/comparison/peers/dgl_peer.py)

Arrays: `edge_index`, `x`, `y`; `NAME/out` has a model's outputs, and `NAME/weights/…` its state dict.
"""

import sys
from pathlib import Path

import numpy as np

ARCHIVE = Path(__file__).with_name("dgl-models.npz")
PEERS = Path(__file__).parents[3] / "jobs" / "bench" / "comparison" / "peers"
NODES, WIDTH, HIDDEN, CLASSES, HEADS = 30, 5, 4, 3, 2
#: Options of each model here.
MODELS = {
    "gcn": ("--hidden", HIDDEN),
    "sage": ("--hidden", HIDDEN),
    "gin": ("--hidden", HIDDEN),
    "gat": ("--hidden", HIDDEN, "--heads", HEADS),
    "sgc": (),
}


def layers(name):
    """Two layers of DGL, and the activation between."""
    import torch
    from dgl.nn.pytorch import GATConv, GINConv, GraphConv, SAGEConv, SGConv
    from torch.nn import Linear, ReLU, Sequential

    if name == "sgc":
        return [SGConv(WIDTH, CLASSES, k=2)], torch.relu
    if name == "gat":
        return [GATConv(WIDTH, HIDDEN, HEADS), GATConv(HIDDEN * HEADS, CLASSES, 1)], torch.nn.functional.elu
    pairs = ((WIDTH, HIDDEN), (HIDDEN, CLASSES))
    if name == "gin":
        made = [GINConv(Sequential(Linear(a, b), ReLU(), Linear(b, b)), "sum", learn_eps=True) for a, b in pairs]
    else:
        made = [GraphConv(a, b) if name == "gcn" else SAGEConv(a, b, "mean") for a, b in pairs]
    return made, torch.relu


def trained(name, graph, x, y):
    """(state dict, outputs) of a model after some steps."""
    import torch

    found, activation = layers(name)
    module = torch.nn.Module()
    module.layers = torch.nn.ModuleList(found)

    def outputs():
        h = x
        for number, layer in enumerate(module.layers):
            h = layer(graph, h if number == 0 else activation(h)).reshape(len(x), -1)
        return h

    optimizer = torch.optim.Adam(module.parameters(), 0.02)
    for _ in range(30):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(outputs(), y).backward()
        optimizer.step()
    return module.state_dict(), outputs().detach()


def main():
    """Write the archive."""
    sys.path.insert(0, str(PEERS))
    import dgl_peer
    import torch

    torch.manual_seed(1)
    draw = np.random.default_rng(1)
    ends = draw.integers(0, NODES, (2, 70))
    ends = np.unique(np.concatenate([ends, ends[::-1]], 1)[:, np.tile(ends[0] != ends[1], 2)], axis=1)
    ends = np.concatenate([ends, np.tile(np.arange(NODES), (2, 1))], 1)
    x = draw.standard_normal((NODES, WIDTH)).astype(np.float32)
    y = draw.integers(0, CLASSES, NODES)
    graph = dgl_peer.dgl.graph(tuple(torch.from_numpy(ends)), num_nodes=NODES)
    arrays = {"edge_index": ends, "x": x, "y": y}
    for name in MODELS:
        state, outputs = trained(name, graph, torch.from_numpy(x), torch.from_numpy(y))
        arrays |= {f"{name}/weights/{key}": tensor.numpy() for key, tensor in state.items()}
        arrays[f"{name}/out"] = outputs.numpy()
    np.savez_compressed(ARCHIVE, **arrays)


if __name__ == "__main__":
    main()
