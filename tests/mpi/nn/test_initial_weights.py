"""Initial weights: the draws and bounds of every layer, as PyG has them and Glorot-uniform, the same on all ranks."""

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
from hpcgnn.nn.sage import SAGEConv, SAGEPoolConv
from hpcgnn.nn.spec import ModelSpec
from hpcgnn.nn.transformer import TransformerConv
from hpcgnn.ops.draws import Randomness

from ..training import build_trainer, configure

SEED, PARAMETER = 11, 1
IN, OUT, WIDTH, HEADS, TYPES, BASES = 40, 50, 16, 3, 7, 4
ATTENTIVE = ModelSpec("", IN, OUT, 1, WIDTH, bases=BASES, edge_types=TYPES)


def glorot(fan_in, fan_out):
    """The bound of Glorot and Bengio's uniform distribution."""
    return math.sqrt(6 / (fan_in + fan_out))


def kaiming(fan_in):
    """torch.nn.Linear: Kaiming-uniform with a = √5, so √(6 / ((1 + 5) fan_in)), and the same for the bias."""
    return math.sqrt(6 / ((1 + math.sqrt(5) ** 2) * fan_in))


HALVES = glorot(HEADS, WIDTH)
JOINED = glorot(IN, HEADS * WIDTH)
#: kind -> (its layer, [(parameter, PyG's bound, Glorot's or None for zero)] in the order of the draws).
LAYERS = {
    "linear": (
        lambda: Linear(IN, OUT),
        [("weight", kaiming(IN), glorot(IN, OUT)), ("bias", kaiming(IN), None)],
    ),
    "gcn": (lambda: GCNConv(IN, OUT), [("linear.weight", glorot(IN, OUT), glorot(IN, OUT))]),
    "sage": (
        lambda: SAGEConv(IN, OUT),
        [
            ("neighbour.weight", kaiming(IN), glorot(IN, OUT)),
            ("own.weight", kaiming(IN), glorot(IN, OUT)),
            ("own.bias", kaiming(IN), None),
        ],
    ),
    "sage, pool": (
        lambda: SAGEPoolConv(IN, OUT),
        [
            ("neighbour.weight", kaiming(OUT), glorot(OUT, OUT)),
            ("own.weight", kaiming(IN), glorot(IN, OUT)),
            ("pool.weight", kaiming(IN), glorot(IN, OUT)),
            ("own.bias", kaiming(IN), None),
            ("pool.bias", kaiming(IN), None),
        ],
    ),
    "gin": (
        lambda: GINConv(IN, OUT),
        [
            ("first.weight", kaiming(IN), glorot(IN, OUT)),
            ("second.weight", kaiming(OUT), glorot(OUT, OUT)),
            ("first.bias", kaiming(IN), None),
            ("second.bias", kaiming(OUT), None),
        ],
    ),
    "sgc": (
        lambda: SGCConv(IN, OUT, 2),
        [("linear.weight", kaiming(IN), glorot(IN, OUT)), ("linear.bias", kaiming(IN), None)],
    ),
    "gat": (
        lambda: GATConv(IN, WIDTH, HEADS),
        [
            ("att_src", HALVES, glorot(WIDTH, 1)),
            ("att_dst", HALVES, glorot(WIDTH, 1)),
            ("linear.weight", JOINED, JOINED),
        ],
    ),
    "gatv2": (
        lambda: GATv2Conv(IN, WIDTH, HEADS),
        [
            ("attention", HALVES, glorot(WIDTH, 1)),
            ("source.weight", JOINED, JOINED),
            ("target.weight", JOINED, JOINED),
            ("source.bias", kaiming(IN), None),
            ("target.bias", kaiming(IN), None),
        ],
    ),
    "transformer": (
        lambda: TransformerConv(IN, WIDTH, HEADS, False, ATTENTIVE),
        [
            ("query.weight", kaiming(IN), JOINED),
            ("key_value.weight", kaiming(IN), glorot(IN, 2 * HEADS * WIDTH)),
            ("own.weight", kaiming(IN), JOINED),
            ("query.bias", kaiming(IN), None),
            ("key_value.bias", kaiming(IN), None),
            ("own.bias", kaiming(IN), None),
        ],
    ),
    "pna": (  # PyG joins the node's own row and 4 aggregates with 3 scalers each
        lambda: PNAConv(IN, OUT),
        [
            ("own.weight", kaiming(13 * IN), glorot(IN, OUT)),
            *((f"scaled.{scaler}.weight", kaiming(13 * IN), glorot(4 * IN, OUT)) for scaler in range(3)),
            ("own.bias", kaiming(13 * IN), None),
        ],
    ),
    "rgcn": (
        lambda: RGCNConv(IN, OUT, TYPES, BASES),
        [
            *((f"bases.{basis}", glorot(IN, OUT), glorot(IN, OUT)) for basis in range(BASES)),
            ("coefficients", glorot(TYPES, BASES), glorot(BASES, BASES)),
            ("own.weight", glorot(IN, OUT), glorot(IN, OUT)),
        ],
    ),
    "rgat": (
        lambda: RGATConv(IN, WIDTH, HEADS, False, ATTENTIVE),
        [
            *((f"bases.{basis}", JOINED, JOINED) for basis in range(BASES)),
            ("coefficients", glorot(TYPES, BASES), glorot(BASES, BASES)),
            ("att_src", HALVES, glorot(WIDTH, 1)),
            ("att_dst", HALVES, glorot(WIDTH, 1)),
            ("own.weight", JOINED, JOINED),
        ],
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


@pytest.mark.parametrize("rule", ["pyg", "glorot"])
@pytest.mark.parametrize("kind", LAYERS)
def test_draws_and_bounds(kind, rule):
    make, expected = LAYERS[kind]
    layer, number = make(), 0
    initialise(layer, Randomness(SEED), rule)
    zeros = {name for name, parameter in layer.named_parameters() if not parameter.any()}
    for name, *bounds in expected:
        bound, parameter = bounds[rule == "glorot"], parameter_of(layer, name)
        if bound is None:
            assert name in zeros
            continue
        torch.testing.assert_close(parameter.detach(), drawn(parameter.shape, number, bound), rtol=1e-6, atol=1e-9)
        number += 1
    named = {name.rpartition(".")[0] if name.startswith("bases.") else name for name, *_ in expected}
    assert zeros >= {name for name, _ in layer.named_parameters()} - named, "a parameter is drawn that nobody expects"


@pytest.mark.parametrize("rule", ["pyg", "glorot"])
def test_a_run_begins_with_them_on_every_rank(comm, graph, rule):
    config = configure(graph, model="sage", layers=2, hidden=6, seed=SEED, initial_weights=rule)
    model = build_trainer(comm, config, "metis").model
    layers = [(conv.neighbour.weight, conv.own.weight) for conv in model.convs]
    weights = [weight for pair in layers for weight in pair]
    biases = [conv.own.bias for conv in model.convs]
    for number, weight in enumerate(weights):
        bound = kaiming(len(weight)) if rule == "pyg" else glorot(*weight.shape)
        torch.testing.assert_close(weight.detach(), drawn(weight.shape, number, bound), rtol=1e-6, atol=1e-9)
    for number, bias in enumerate(biases, len(weights)):
        if rule == "glorot":
            assert not bias.any()
            continue
        bound = kaiming(len(weights[2 * (number - len(weights))]))
        torch.testing.assert_close(bias.detach(), drawn(bias.shape, number, bound), rtol=1e-6, atol=1e-9)
    mine = [parameter.detach().numpy().tobytes() for parameter in model.parameters()]
    assert all(other == mine for other in comm.allgather_object(mine))
