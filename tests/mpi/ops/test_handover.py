"""Rows that one layer gives to the next with their memory: what is refused, that it changes no number, and that nothing
is kept.
"""

import contextlib
import gc

import graphs
import numpy as np
import pytest
import torch

from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.memory.stored import Kept
from hpcgnn.nn.graph import Graph
from hpcgnn.nn.linear import initialise
from hpcgnn.nn.registry import MODELS, complete
from hpcgnn.nn.spec import ModelSpec
from hpcgnn.ops.additive_attention import Attending, AttentionShape
from hpcgnn.ops.attention_layer import attention_layer
from hpcgnn.ops.draws import Randomness
from hpcgnn.ops.dropout import EluDropout, ReluDropout
from hpcgnn.ops.handover import Handover, Loan
from hpcgnn.ops.operators import Attention
from hpcgnn.schedules.full_halo import FullHalo

from ..small import stored

FEATURES, CLASSES = 5, 3
BELOW, ABOVE = AttentionShape(2, 4), AttentionShape(1, CLASSES)


# --- one handover -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("second", ["take", "keep"])
@pytest.mark.parametrize("first", ["take", "keep"])
def test_rows_leave_once(first, second):
    rows = torch.ones(3, 2)
    handover = Handover(rows)
    found = getattr(handover, first)()
    assert found is rows if first == "keep" else found == (rows, None)
    with pytest.raises(RuntimeError, match="taken once"):
        getattr(handover, second)()


def test_a_loan_comes_back_as_it_was_given():
    memory = torch.zeros(4, 7)
    loan = Loan(Kept(memory[:, :3]), Kept(memory[:, 3:4]), torch.zeros(3), False)
    handover = Handover(memory[:, :3], loan, activation=object())
    assert not loan.taken
    assert handover.take(returns_loan=True)[1] is loan and loan.taken
    with pytest.raises(RuntimeError, match="handed over"):
        loan.check_return(loan.y.tensor())  # nobody has written to it
    sums = torch.ones(3)
    loan.give_back(sums)
    loan.check_return(loan.y.tensor())
    assert loan.sums is sums
    for other in (loan.y.tensor().clone(), memory[:, 1:4], memory.view(-1)[:12].view(4, 3)):
        with pytest.raises(RuntimeError, match="handed over"):
            loan.check_return(other)


# --- two layers of attention ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def local(comm, session_path):
    _, where, file = stored(comm, session_path, "power law")
    local = graphs.load(file, where.maps["dealt"], comm, cap=20, self_loops="add")
    assert local.num_owned
    return local


class Two:
    """Two layers of attention with an ELU between them, and a loss."""

    def __init__(self, comm, local, p=0.0, below=BELOW, bias=True):
        policy = FullHalo(local, comm, HaloBuffers(1 << 20))
        self.ids, self.p, self.shapes = local.original_id, p, (below, ABOVE)
        self.operators = [policy.operator(Attention(shape)) for shape in self.shapes]
        draws = torch.Generator().manual_seed(1)
        between = below.width if below.average else below.columns
        out = [between, ABOVE.columns]

        def made(*shape):
            return torch.randn(*shape, dtype=torch.float64, generator=draws).requires_grad_()

        self.weights = [
            made(d_in, shape.columns + 2 * shape.heads) for d_in, shape in zip((FEATURES, between), self.shapes)
        ]
        self.biases = [made(width) if bias else None for width in out]
        self.x = torch.from_numpy(
            np.random.default_rng(2).standard_normal((local.num_nodes, FEATURES))[self.ids.numpy()]
        ).requires_grad_()
        self.factors = torch.cos(torch.arange(CLASSES) + self.ids[:, None]).double()

    def below(self, hand_over):
        return self._layer(0, self.x, hand_over)

    def above(self, h):
        if isinstance(h, Handover):
            h.activation = EluDropout(self.ids, 77, self.p)
            return self._layer(1, h)
        return self._layer(1, EluDropout(self.ids, 77, self.p)(h.clone()))

    def _layer(self, number, x, hand_over=False):
        how = Attending(self.shapes[number], 5 + number, self.p, bias=self.biases[number])
        return attention_layer(x, self.weights[number], self.operators[number], how, hand_over=hand_over)

    def loss(self, y):
        return (y * self.factors).sum()

    def gradients(self):
        tensors = [self.x, *self.weights, *(bias for bias in self.biases if bias is not None)]
        found = [tensor.grad for tensor in tensors]
        for tensor in tensors:
            tensor.grad = None
        assert all(bool(each.any()) for each in found)
        return found


@pytest.mark.parametrize(
    "below, bias",
    [(shape, bias) for shape in (BELOW, AttentionShape(2, 4, average=True)) for bias in (True, False)],
    ids=["joined", "joined without bias", "averaged", "averaged without bias"],
)
@pytest.mark.parametrize("p", [0.0, 0.4])
def test_attention_with_and_without_a_handover(comm, local, p, below, bias):
    """A layer that has nothing to lend hands over all the same. Rows that are kept are ordinary rows."""
    two = Two(comm, local, p, below, bias)
    found = []
    for how in ("separate", "handed over", "kept"):
        h = two.below(how != "separate")
        if how != "separate":
            assert isinstance(h, Handover) and (h.loan is None) == below.average
        y = two.above(h.keep() if how == "kept" else h)
        two.loss(y).backward()
        found.append([y.detach(), *two.gradients()])
    for other in found[1:]:
        for mine, expected in zip(other, found[0], strict=True):
            torch.testing.assert_close(mine, expected, rtol=1e-9, atol=1e-9)


def test_a_gradient_that_was_copied_is_refused(comm, local):
    """By a hook, say: what comes is right, but not where the layer's own part of it stands."""
    two = Two(comm, local)
    h = two.below(True)
    h.rows.register_hook(lambda gradient: gradient.clone())
    with pytest.raises(RuntimeError, match="something else has used it or changed its gradient"):
        two.loss(two.above(h)).backward()


def test_who_saved_the_rows_before_they_were_taken_gets_the_error_of_autograd(comm, local):
    two = Two(comm, local)
    h = two.below(True)
    beside = h.rows.square().sum()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        (two.loss(two.above(h)) + beside).backward()


@pytest.mark.parametrize(
    "use", [lambda rows: rows.sum(), lambda rows: rows.square().sum()], ids=["sum", "sum of squares"]
)
def test_rows_that_somebody_else_uses_after_they_were_taken(comm, local, use):
    """Their gradient is then a sum, and no longer in the memory that was lent."""
    two = Two(comm, local)
    h = two.below(True)
    loss = two.loss(two.above(h))
    with pytest.raises(RuntimeError, match="Use the rows of such a layer only once"):
        (loss + use(h.rows)).backward()


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


def test_a_loan_goes_to_those_alone_who_return_it(comm, local):
    """A linear layer has nothing to write D with."""
    two = Two(comm, local)
    h = two.below(True)
    with pytest.raises(RuntimeError, match="come with a loan"):
        h.take()
    h = two.below(True)
    h.activation = None
    with pytest.raises(RuntimeError, match="come with a loan"):
        h.take(returns_loan=True)
