"""Initial weights: the draws and bounds of every layer, as PyG has them, the same on all ranks."""

import math

import numpy as np
import oracle
import pytest
import torch

from hpcgnn.nn.gat import GATConv
from hpcgnn.nn.gatv2 import GATv2Conv
from hpcgnn.nn.gcn import GCNConv, SGCConv
from hpcgnn.nn.gin import GINConv
from hpcgnn.nn.linear import Linear, initialise
from hpcgnn.nn.pna import PNAConv
from hpcgnn.nn.rgcn import RGATConv, RGCNConv
from hpcgnn.nn.sage import SAGEConv
from hpcgnn.nn.spec import ModelSpec
from hpcgnn.nn.transformer import TransformerConv
from hpcgnn.ops.draws import Randomness
from hpcgnn.options import ModelConfig

from ..training import build_trainer, configure

SEED, PARAMETER = 11, 1
IN, OUT, WIDTH, HEADS, TYPES, BASES = 40, 50, 16, 3, 7, 4
ATTENTIVE = ModelSpec(ModelConfig(bases=BASES), IN, OUT, edge_types=TYPES)


def glorot(fan_in, fan_out):
    """The bound of Glorot and Bengio's uniform distribution."""
    return math.sqrt(6 / (fan_in + fan_out))


def kaiming(fan_in):
    """torch.nn.Linear: Kaiming-uniform with a = √5, so √(6 / ((1 + 5) fan_in)), and the same for the bias."""
    return math.sqrt(6 / ((1 + math.sqrt(5) ** 2) * fan_in))


HALVES = glorot(HEADS, WIDTH)
JOINED = glorot(IN, HEADS * WIDTH)
#: kind -> (its layer, [(parameter, the bound of its draws)] in their order); all others are zero.
LAYERS = {
    "linear": (lambda: Linear(IN, OUT), {"weight": kaiming(IN), "bias": kaiming(IN)}),
    "gcn": (lambda: GCNConv(IN, OUT), {"linear.weight": glorot(IN, OUT)}),
    "sage": (
        lambda: SAGEConv(IN, OUT),
        dict.fromkeys(("neighbour.weight", "own.weight", "own.bias"), kaiming(IN)),
    ),
    "gin": (
        lambda: GINConv(IN, OUT),
        {"first.weight": kaiming(IN), "second.weight": kaiming(OUT)}
        | {"first.bias": kaiming(IN), "second.bias": kaiming(OUT)},
    ),
    "sgc": (lambda: SGCConv(IN, OUT, 2), {"linear.weight": kaiming(IN), "linear.bias": kaiming(IN)}),
    "gat": (lambda: GATConv(IN, WIDTH, HEADS), {"att_src": HALVES, "att_dst": HALVES, "linear.weight": JOINED}),
    "gatv2": (
        lambda: GATv2Conv(IN, WIDTH, HEADS),
        {"attention": HALVES, "source.weight": JOINED, "target.weight": JOINED}
        | {"source.bias": kaiming(IN), "target.bias": kaiming(IN)},
    ),
    "transformer": (
        lambda: TransformerConv(IN, WIDTH, HEADS, False, ATTENTIVE),
        {f"{name}.{part}": kaiming(IN) for part in ("weight", "bias") for name in ("query", "key_value", "own")},
    ),
    "pna": (  # PyG joins the node's own row and 4 aggregates with 3 scalers each
        lambda: PNAConv(IN, OUT),
        dict.fromkeys(("own.weight", *(f"scaled.{k}.weight" for k in range(3)), "own.bias"), kaiming(13 * IN)),
    ),
    "rgcn": (
        lambda: RGCNConv(IN, OUT, TYPES, BASES),
        {f"bases.{basis}": glorot(IN, OUT) for basis in range(BASES)}
        | {"coefficients": glorot(TYPES, BASES), "own.weight": glorot(IN, OUT)},
    ),
    "rgat": (
        lambda: RGATConv(IN, WIDTH, HEADS, False, ATTENTIVE),
        {f"bases.{basis}": JOINED for basis in range(BASES)}
        | {"coefficients": glorot(TYPES, BASES), "att_src": HALVES, "att_dst": HALVES, "own.weight": JOINED},
    ),
}


def drawn(shape, number, bound):
    """U(-bound, bound), by the oracle's generator: draws of parameter number `number`."""
    rows, columns = shape if len(shape) == 2 else (1, shape[0])
    key = oracle.stream_key(SEED, 0, number, PARAMETER)
    words = oracle.random_words(key, np.arange(rows, dtype=np.int64), columns)
    return torch.from_numpy(((2 * (words / 2.0**32) - 1) * bound).astype(np.float32)).view(shape)


def parameter_of(layer, name):
    """The parameter of this name; 'bases.2' is a slice."""
    parameters, (first, _, last) = dict(layer.named_parameters()), name.rpartition(".")
    return parameters[name] if name in parameters else parameters[first][int(last)]


@pytest.mark.parametrize("kind", LAYERS)
def test_draws_and_bounds(kind):
    make, expected = LAYERS[kind]
    layer = make()
    initialise(layer, Randomness(SEED))
    for number, (name, bound) in enumerate(expected.items()):
        parameter = parameter_of(layer, name).detach()
        torch.testing.assert_close(parameter, drawn(parameter.shape, number, bound), rtol=1e-6, atol=1e-9)
    named = {name.rpartition(".")[0] if name.startswith("bases.") else name for name in expected}
    for name, parameter in layer.named_parameters():
        assert name in named or not parameter.any(), "a parameter is drawn that nobody expects"


def test_a_run_begins_with_them_on_every_rank(comm, graph):
    model = build_trainer(comm, configure(graph, model="sage", layers=2, hidden=6, seed=SEED), "metis").model
    weights = [weight for conv in model.convs for weight in (conv.neighbour.weight, conv.own.weight)]
    biases = [(conv.own.bias, kaiming(conv.d_in)) for conv in model.convs]
    for number, (each, bound) in enumerate([*((weight, kaiming(len(weight))) for weight in weights), *biases]):
        torch.testing.assert_close(each.detach(), drawn(each.shape, number, bound), rtol=1e-6, atol=1e-9)
    mine = [parameter.detach().numpy().tobytes() for parameter in model.parameters()]
    assert all(other == mine for other in comm.allgather_object(mine))
