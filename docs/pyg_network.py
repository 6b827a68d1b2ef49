"""A network of PyG's layers with the weights that `hpcgnn export RUN -o pyg.safetensors --to pyg` wrote."""

import json

import torch
from safetensors import safe_open
from torch_geometric import nn as pyg

with safe_open("pyg.safetensors", "pt") as file:
    about = json.loads(file.metadata()["hpcgnn"])
    state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it has no iterator
o, graph = about["options"], about["graph"]
LOOPS = {"add_self_loops": o["self_loops"] == "add"}


def conv(a, b, last):
    heads = {"heads": o["out_heads"] if last else o["heads"], "concat": not (last and o["out_heads"] > 1)}
    relations = graph["edge_types"]
    return {
        "gcn": lambda: pyg.GCNConv(a, b, **LOOPS),
        "sgc": lambda: pyg.SGConv(a, b, K=o["layers"], **LOOPS),
        "sage": lambda: pyg.SAGEConv(a, b),
        "gin": lambda: pyg.GINConv(pyg.MLP([a, b, b], norm=None), train_eps=True),
        "gat": lambda: pyg.GATConv(a, b, **heads, **LOOPS),
        "gatv2": lambda: pyg.GATv2Conv(a, b, **heads, **LOOPS),
        "transformer": lambda: pyg.TransformerConv(a, b, **heads),
        "rgcn": lambda: pyg.RGCNConv(a, b, relations, num_bases=min(o["bases"], max(1, relations))),
    }[o["model"]]()


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        attention = o["model"] in ("gat", "gatv2", "transformer")
        layers, wide = (1 if o["model"] == "sgc" else o["layers"]), o["hidden"] * (o["heads"] if attention else 1)
        self.before = None
        if "before.weight" in state:
            self.before = pyg.HeteroLinear(graph["features"], o["hidden"], len(state["before.weight"]))
        widths = [graph["features"] if self.before is None else o["hidden"]] + [wide] * (layers - 1)
        self.convs = torch.nn.ModuleList(
            conv(a, graph["classes"] if i == layers - 1 else o["hidden"], i == layers - 1) for i, a in enumerate(widths)
        )
        norm = {"none": lambda w: torch.nn.Identity(), "batch": pyg.BatchNorm, "layer": torch.nn.LayerNorm}[o["norm"]]
        self.norms = torch.nn.ModuleList(norm(wide) for _ in range(layers - 1))
        self.activation = torch.nn.functional.elu if attention else torch.relu

    def forward(self, x, edge_index, node_type=None, **edges):  # edges: edge_weight of gcn and sgc, edge_type of rgcn
        if self.before is not None:
            x = torch.relu(self.before(x, torch.zeros(len(x), dtype=torch.int64) if node_type is None else node_type))
        for i, layer in enumerate(self.convs):
            y = layer(x, edge_index, **edges)
            if i == len(self.convs) - 1:
                return y
            y = self.activation(self.norms[i](y))
            x = x + y if o["residual"] and i > 0 else y


net = Net().eval()
net.load_state_dict(state)
