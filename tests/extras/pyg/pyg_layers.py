"""Every class of torch_geometric.nn.conv and the models named below: its constructor, and the arguments of its forward.

Classes are found, and arguments are found from the signatures; the tables here have only entries that cannot be
guessed. A new class of PyG that cannot be made from its signature fails the tests until it has an entry.
"""

import inspect
import warnings

import numpy as np
import torch
import torch_geometric.nn as pyg
import torch_geometric.nn.conv as convs
from mpi.gathering import whole
from torch_geometric.utils import scatter

from hpcgnn.errors import ConfigError
from hpcgnn.extras.pyg import from_pyg_layer

WIDTH, EDGE, TYPES = 6, 3, 2
COMMON = {
    **dict.fromkeys(("in_channels", "out_channels", "channels", "hidden_channels"), WIDTH),
    **{"dim": EDGE, "edge_dim": EDGE, "K": 2, "alpha": 0.2, "num_layers": 2, "num_relations": TYPES},
    **{"kernel_size": 2, "heads": 2, "norm": None},
}


def linear(width=WIDTH, out=WIDTH):
    return torch.nn.Linear(width, out)


def degrees():
    return torch.tensor([2, 8, 8, 4, 2, 1])


METADATA = (["node"], [("node", "to", "node")])
#: Arguments that the signature does not tell.
MADE = {
    "GINConv": {"nn": linear},
    "GINEConv": {"nn": linear},
    "EdgeConv": {"nn": lambda: linear(2 * WIDTH)},
    "DynamicEdgeConv": {"nn": lambda: linear(2 * WIDTH), "k": 2},
    "NNConv": {"nn": lambda: linear(EDGE, WIDTH * WIDTH)},
    "CGConv": {"dim": EDGE},
    "PointNetConv": {"local_nn": lambda: linear(WIDTH + EDGE)},
    "PPFConv": {"local_nn": lambda: linear(WIDTH + 4)},
    "PointGNNConv": {"mlp_h": lambda: linear(WIDTH, EDGE), "mlp_f": lambda: linear(WIDTH + EDGE), "mlp_g": linear},
    "PNAConv": {"aggregators": ["mean", "max"], "scalers": ["identity", "amplification"], "deg": degrees},
    "PNA": {"aggregators": ["mean", "max"], "scalers": ["identity", "amplification"], "deg": degrees},
    "EGConv": {"num_heads": 2, "num_bases": 2},
    "GravNetConv": {"space_dimensions": 2, "propagate_dimensions": 2, "k": 2},
    "HEATConv": {"num_node_types": TYPES, "num_edge_types": TYPES, "edge_type_emb_dim": 2, "edge_attr_emb_dim": 2},
    "HANConv": {"metadata": METADATA},
    "HGTConv": {"metadata": METADATA},
    "HeteroConv": {"convs": lambda: {("node", "to", "node"): pyg.SAGEConv(WIDTH, WIDTH)}},
    "DirGNNConv": {"conv": lambda: pyg.SAGEConv(WIDTH, WIDTH)},
    "GPSConv": {"conv": lambda: pyg.SAGEConv(WIDTH, WIDTH)},
    "SignedConv": {"first_aggr": True},
    "PANConv": {"filter_size": 2},
    "GENConv": {"norm": "batch"},
    "GeneralConv": {"in_edge_channels": EDGE},
    "GatedGraphConv": {"out_channels": WIDTH + 1},
}
#: Classes that need a library beside PyG, which is not here.
FOREIGN = {
    **dict.fromkeys(("CuGraphSAGEConv", "CuGraphGATConv", "CuGraphRGCNConv"), "cuGraph"),
    **{"FusedGATConv": "dgNN", "PANConv": "torch_sparse", "SplineConv": "pyg_lib"},
    **dict.fromkeys(("XConv", "GravNetConv", "DynamicEdgeConv"), "pyg_lib"),
}
MODELS = ["GCN", "GraphSAGE", "GIN", "GAT", "PNA", "EdgeCNN"]
#: Variants of models and layers that the defaults do not show: name: (class, arguments).
VARIANTS = {
    "GCN, batch norm and jumping knowledge": ("GCN", {"norm": "batch_norm", "jk": "cat"}),
    "GraphSAGE, layer norm, max": ("GraphSAGE", {"norm": "layer_norm", "norm_kwargs": {"mode": "node"}, "aggr": "max"}),
    "GIN, jumping knowledge by LSTM": ("GIN", {"jk": "lstm"}),
    "GAT, v2": ("GAT", {"v2": True}),
    "GCNConv, improved": ("GCNConv", {"improved": True}),
    "GATConv, edge features and self loops": ("GATConv", {}),
    "SAGEConv, median": ("SAGEConv", {"aggr": "median"}),
    "SAGEConv, power mean": ("SAGEConv", {"aggr": "powermean"}),
    "GENConv, learned softmax": ("GENConv", {"learn_t": True, "norm": "layer"}),
    "GCN, graph norm": ("GCN", {"norm": "graph_norm"}),
    "CGConv, batch norm": ("CGConv", {"batch_norm": True}),
    "GeneralConv, attention": ("GeneralConv", {"attention": True}),
    "SAGEConv, LSTM": ("SAGEConv", {"aggr": "lstm"}),
}


class OfBothEnds(pyg.MessagePassing):
    """A layer of a user's own: rows of both ends, of the edge, and a parameter, in three dimensions."""

    def __init__(self):
        super().__init__(aggr=["mean", "max"], node_dim=0)
        self.weight = torch.nn.Parameter(torch.randn(2, 3))

    def forward(self, x, edge_index, edge_attr):
        x = x.view(-1, 2, 3)
        out = self.propagate(edge_index, x=x, other=torch.tanh(x[:, 0]), edge_attr=edge_attr)
        return out.flatten(1)

    def message(self, x_j, other_i, edge_attr):
        return ((x_j * self.weight).sum(1) + other_i) * edge_attr


class UpdatesEdges(pyg.MessagePassing):
    """Edges are updated one by one before the messages."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(EDGE, 2, WIDTH))

    def forward(self, x, edge_index, edge_attr):
        return self.propagate(edge_index, x=x, e=self.edge_updater(edge_index, x=x, edge_attr=edge_attr))

    def edge_update(self, x_j, x_i, edge_attr):
        return torch.tanh(x_j - x_i)[:, None] * torch.einsum("ek,khw->ehw", edge_attr, self.weight)

    def message(self, x_j, e):
        return x_j * e[:, 0] + e[:, 1]


class UpdatesBoth(torch.nn.Module):
    """PyG's MetaLayer with a model of edges and one of nodes."""

    def __init__(self):
        super().__init__()
        self.edges, self.nodes = linear(2 * WIDTH + EDGE), linear(2 * WIDTH)
        self.meta = pyg.MetaLayer(self.of_edges, self.of_nodes)

    def forward(self, x, edge_index, edge_attr):
        x, edge_attr, _ = self.meta(x, edge_index, edge_attr)
        return self.meta(x, edge_index, edge_attr[:, :EDGE])[0]

    def of_edges(self, src, dst, edge_attr, u, batch):
        return torch.tanh(self.edges(torch.cat([src, dst, edge_attr], 1)))

    def of_nodes(self, x, edge_index, edge_attr, u, batch):
        _, ends = edge_index
        return x + self.nodes(torch.cat([x, scatter(edge_attr, ends, 0, len(x))], 1))


OWN = {each.__name__: each for each in (OfBothEnds, UpdatesEdges, UpdatesBoth)}


def names():
    """All classes of torch_geometric.nn.conv, found in the module."""
    return [name for name in convs.classes if name != "MessagePassing"]


def every():
    """All that is tried: classes, models, variants."""
    return [*names(), *MODELS, *VARIANTS]


def make(name):
    """The layer in float64, with parameters that are drawn alike everywhere."""
    kind, extra = VARIANTS.get(name, (name, {}))
    cls, own = OWN.get(kind) or getattr(pyg, kind), {**MADE.get(kind, {}), **extra}
    given = {}
    for each in inspect.signature(cls.__init__).parameters.values():
        if each.name in own:
            given[each.name] = own[each.name]
        elif each.name in COMMON and (
            each.default is inspect.Parameter.empty or each.name in ("edge_dim", "heads", "num_relations")
        ):
            given[each.name] = COMMON[each.name]
    given = {**given, **extra}
    if kind in MODELS:
        given = {key: value for key, value in given.items() if key not in ("heads", "edge_dim")}
        given |= own
    torch.manual_seed(3)
    given = {key: value() if callable(value) else value for key, value in given.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        layer = cls(**given).double().train()
    draw = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=draw, dtype=torch.float64) / 3)
    return layer


def inputs(name, layer, num_nodes, num_edges):
    """Arguments of this layer's forward after x and edge_index: ({name: rows of nodes}, {name: rows of edges})."""
    draw = torch.Generator().manual_seed(7)

    def randn(*shape):
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    types = torch.randint(TYPES, (max(num_nodes, num_edges),), generator=draw)
    positions = randn(num_nodes, EDGE)
    nodes = {"pos": positions, "normal": torch.nn.functional.normalize(positions.flip(1), dim=1)}
    nodes |= {"x_0": randn(num_nodes, WIDTH), "node_type": types[:num_nodes]}
    edges = {"edge_weight": randn(num_edges).abs() + 0.1, "edge_attr": randn(num_edges, EDGE)}
    edges["edge_type"] = types[:num_edges]
    taken = inspect.signature(layer.forward).parameters
    kind = VARIANTS.get(name, (name, {}))[0]
    if kind in ("GATConv", "GATv2Conv", "GCNConv") and name == kind:
        edges = {}  # as most people call them, with self loops
    if kind == "FAConv" or (kind in MODELS and not getattr(layer, "supports_edge_weight", True)):
        edges.pop("edge_weight")
    if kind in MODELS and not getattr(layer, "edge_dim", None):
        edges.pop("edge_attr", None)
    return {k: v for k, v in nodes.items() if k in taken}, {k: v for k, v in edges.items() if k in taken}


def rows(name, num_nodes):
    """The rows that a layer transforms: (n, WIDTH), of several layers for DNAConv."""
    draw = torch.Generator().manual_seed(9)
    shape = (num_nodes, 2, WIDTH) if name == "DNAConv" else (num_nodes, WIDTH)
    return torch.randn(*shape, generator=draw, dtype=torch.float64)


def wrapped(name):
    """(the way, the reason, the wrapped layer or None): 'streams', 'keeps messages', 'refused' or 'not tried'.

    A layer that streams may still be refused for its use of edges when it runs: `tried` shows this.
    """
    if name in FOREIGN:
        taken = inspect.signature(getattr(pyg, name).forward).parameters
        if "edge_index" in taken:
            return "not tried", f"PyG runs it with {FOREIGN[name]} alone", None
        return "refused", "its forward() takes no edge_index, as a layer on one given graph does", None
    try:
        return "streams", "", from_pyg_layer(make(name))
    except ConfigError as error:
        why = reason(error)
        if "keep_messages" not in str(error):
            return "refused", why, None
    return "keeps messages", why, from_pyg_layer(make(name), keep_messages=True)


def tried(name, conv, call):
    """(the way, the reason, its output or None) of a wrapped layer; call: conv -> output."""
    try:
        return "streams" if not conv.keep_messages else "keeps messages", "", call(conv)
    except ConfigError as error:
        why = reason(error)
        if "keep_messages=True" not in str(error):
            return "refused", why, None
    way, last, output = tried(name, from_pyg_layer(make(name), keep_messages=True), call)
    return way, last or why, output


def reason(error):
    """Why a layer is refused or keeps messages, from the message."""
    text = str(error).removeprefix("from_pyg_layer: ").split("; ")[0]
    return text.split(" does not fit: ")[-1].removeprefix("this layer ")


def assert_same(comm, share, theirs, ours):
    """Outputs, gradients of the input and of all parameters, and buffers. theirs, ours: (layer, input, output)."""
    (layer, inputs, expected), (conv, own, found) = theirs, ours
    gy = torch.from_numpy(np.random.default_rng(4).standard_normal(expected.shape))
    expected.backward(gy)
    found.backward(gy[share.ids])
    share.sync_gradients(conv)
    pairs = {"output": (whole(comm, share._local, found), expected.detach())}
    pairs["input"] = whole(comm, share._local, own.grad), inputs.grad
    for (name, one), other in zip(layer.named_parameters(), conv.layer.parameters(), strict=True):
        pairs[name] = [0 if each.grad is None else each.grad for each in (other, one)]
    for (name, one), other in zip(layer.named_buffers(), conv.layer.buffers(), strict=True):
        pairs[name] = other, one
    for name, (mine, right) in pairs.items():
        np.testing.assert_allclose(mine, right, rtol=0, atol=1e-9, err_msg=name)
