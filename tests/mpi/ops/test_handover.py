"""Rows that one layer gives to the next with their memory: what is refused, and that nothing is kept. The numbers:
test_in_place.py.
"""

import contextlib
import gc

import graphs
import pytest
import torch

from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.nn.graph import Graph
from hpcgnn.nn.linear import initialise
from hpcgnn.nn.registry import MODELS, complete
from hpcgnn.nn.spec import ModelSpec
from hpcgnn.ops.additive_attention import Attending, AttentionShape
from hpcgnn.ops.attention_layer import attention_layer
from hpcgnn.ops.draws import Randomness
from hpcgnn.ops.dropout import EluDropout, ReluDropout
from hpcgnn.ops.handover import Handover
from hpcgnn.ops.operators import Attention
from hpcgnn.schedules.full_halo import FullHalo

from ..small import stored

FEATURES, CLASSES = 5, 3
BELOW, ABOVE = AttentionShape(2, 4), AttentionShape(1, CLASSES)


@pytest.fixture(scope="module")
def local(comm, session_path):
    _, where, file = stored(comm, session_path, "power law")
    local = graphs.load(file, where.maps["dealt"], comm, cap=20, self_loops="add")
    assert local.num_owned
    return local


class Two:
    """Two layers of attention with an ELU between them, and a loss."""

    def __init__(self, comm, local):
        policy = FullHalo(local, comm, HaloBuffers(1 << 20))
        self.ids, self.shapes = local.original_id, (BELOW, ABOVE)
        self.operators = [policy.operator(Attention(shape)) for shape in self.shapes]
        draws = torch.Generator().manual_seed(1)

        def made(*shape):
            return torch.randn(*shape, dtype=torch.float64, generator=draws).requires_grad_()

        widths = FEATURES, BELOW.columns
        self.weights = [made(d_in, shape.columns + 2 * shape.heads) for d_in, shape in zip(widths, self.shapes)]
        self.biases = [made(shape.columns) for shape in self.shapes]
        self.x = made(local.num_owned, FEATURES)
        self.factors = torch.cos(torch.arange(CLASSES) + self.ids[:, None]).double()

    def below(self):
        return self._layer(0, self.x, hand_over=True)

    def loss(self, h):
        h.activation = EluDropout(self.ids, 77, 0.0)
        return (self._layer(1, h) * self.factors).sum()

    def _layer(self, number, x, hand_over=False):
        how = Attending(self.shapes[number], 5 + number, 0.0, bias=self.biases[number])
        return attention_layer(x, self.weights[number], self.operators[number], how, hand_over=hand_over)


def a_copied_gradient(two, h):
    """As of a hook: it is right, but it does not stand where the layer's own part of it does."""
    h.rows.register_hook(lambda gradient: gradient.clone())
    return two.loss(h)


def saved_before(two, h):
    beside = h.rows.square().sum()
    return two.loss(h) + beside


def used_after(two, h):
    """Their gradient is then a sum, and no longer in the memory that was lent."""
    return two.loss(h) + h.rows.sum()


def saved_after(two, h):
    return two.loss(h) + h.rows.square().sum()


@pytest.mark.parametrize(
    "use, words",
    [
        (a_copied_gradient, "something else has used it or changed its gradient"),
        (saved_before, "modified by an inplace operation"),
        (used_after, "Use the rows of such a layer only once"),
        (saved_after, "Use the rows of such a layer only once"),
    ],
)
def test_rows_that_somebody_else_uses_are_refused(comm, local, use, words):
    two = Two(comm, local)
    with pytest.raises(RuntimeError, match=words):
        use(two, two.below()).backward()


# --- models -----------------------------------------------------------------------------------------------------------


def make_model(kind, dropout):
    options = {"heads": 2, "out_heads": 2, "attention_dropout": dropout, "keep_input": "never"}
    spec = complete(ModelSpec(kind, FEATURES, CLASSES, 3, 4, dropout, dtype=torch.float64, **options))
    model = MODELS[kind].build(spec)
    initialise(model, Randomness(3))
    return model


def make_graph(comm, local):
    """(Graph, its Arena)."""
    buffers, random = HaloBuffers(1 << 20), Randomness(9)
    random.epoch = 4
    policy = FullHalo(local, comm, buffers)
    return Graph(local, policy, comm.total, random, None, buffers.arena), buffers.arena


def loss_of(model, graph):
    y = model(graph)
    return (y * torch.cos(torch.arange(CLASSES) + graph.ids[:, None]).double()).sum()


def test_rows_of_a_linear_convolution_that_were_saved_before(comm, local):
    """Its activation is done in their place: what another operation saved is gone, and autograd says so."""
    graph, _ = make_graph(comm, local)
    conv = make_model("gcn", 0.0).convs[1]
    leaf = torch.randn(local.num_owned, 4, dtype=torch.float64, requires_grad=True)
    rows = leaf * 1
    beside = rows.square().sum()
    y = conv(graph, Handover(rows, activation=graph.activation(ReluDropout, 0.0, 1)))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        (y.sum() + beside).backward()


@contextlib.contextmanager
def without_collector():
    """No reference cycle is broken here: what is in one stays."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.mark.parametrize("kind", ["gat", "gcn", "sage"])
def test_nothing_is_kept_after_a_step(comm, local, kind, monkeypatch):
    """All matrices of a step are back while its loss is still there, and no cycle holds them. A forward pass alone
    gives back what it took, too.
    """
    monkeypatch.setattr("hpcgnn.memory.arena.SMALL", 0)
    model, (graph, arena) = make_model(kind, 0.3), make_graph(comm, local)
    before = arena.taken
    with without_collector():
        for _ in range(2):
            loss = loss_of(model, graph)
            assert arena.taken > before
            loss.backward()
            assert arena.taken == before
        loss = loss_of(model, graph)
        assert arena.taken > before
        del loss
        assert arena.taken == before
        with torch.no_grad():
            loss_of(model, graph)
        assert arena.taken == before
