"""Rows that one layer gives to the next with their memory: the refused uses, and that nothing is kept."""

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
from hpcgnn.ops.draws import Randomness
from hpcgnn.ops.dropout import EluDropout, ReluDropout
from hpcgnn.ops.handover import Handover, Loan
from hpcgnn.options import ModelConfig
from hpcgnn.schedules.full_halo import FullHalo

from ..small import stored

FEATURES, CLASSES = 5, 3


def test_a_loan_comes_back_as_it_was_given():
    """It goes once, and to those alone who return it: a linear layer has nothing to write D with."""
    memory = torch.zeros(4, 7)
    loan = Loan(Kept(memory[:, :3]), Kept(memory[:, 3:4]), torch.zeros(3), False)
    for words, activation in ({}, object()), ({"returns_loan": True}, None):
        with pytest.raises(RuntimeError, match="come with a loan"):
            Handover(memory[:, :3], loan, activation).take(**words)
    handover = Handover(memory[:, :3], loan, activation=object())
    assert not loan.taken
    assert handover.take(returns_loan=True)[1] is loan and loan.taken
    with pytest.raises(RuntimeError, match="taken once"):
        handover.take(returns_loan=True)
    with pytest.raises(RuntimeError, match="handed over"):
        loan.check_return(loan.y.tensor())  # nobody has written to it
    sums = torch.ones(3)
    loan.give_back(sums)
    loan.check_return(loan.y.tensor())
    assert loan.sums is sums
    for other in (loan.y.tensor().clone(), memory[:, 1:4], memory.view(-1)[:12].view(4, 3)):
        with pytest.raises(RuntimeError, match="handed over"):
            loan.check_return(other)


@pytest.fixture(scope="module")
def local(comm, session_path):
    _, where, file = stored(comm, session_path, "power law")
    local = graphs.load(file, where.maps["dealt"], comm, cap=20, self_loops="add")
    assert local.num_owned
    return local


def make_model(kind, dropout):
    rates = {"dropout": dropout, "attention_dropout": dropout, "input_dropout": "aggregate", "keep_input": "never"}
    options = ModelConfig(model=kind, hidden=4, heads=2, out_heads=2, **rates)
    spec = complete(ModelSpec(options, FEATURES, CLASSES, dtype=torch.float64))
    model = MODELS[kind].build(spec)
    initialise(model, Randomness(3))
    return model


def make_graph(comm, local):
    """(Graph, its Arena)."""
    buffers, random = HaloBuffers(1 << 20), Randomness(9)
    random.epoch = 4
    policy = FullHalo(local, comm, buffers)
    return Graph(local, policy, comm.total, random, None, buffers.arena), buffers.arena


def loss_of(y, graph):
    return (y * torch.cos(torch.arange(CLASSES) + graph.ids[:, None]).double()).sum()


@pytest.mark.parametrize(
    "use, words",
    [
        (lambda rows: rows.register_hook(torch.clone) and 0.0, "something else has used it or changed its gradient"),
        (lambda rows: rows.sum(), "Use the rows of such a layer only once"),
    ],
    ids=["a copied gradient", "a sum"],
)
def test_rows_of_attention_that_somebody_else_uses(comm, local, use, words):
    """The received gradient is right, but not at the place of the layer's own part."""
    graph, _ = make_graph(comm, local)
    below, above = make_model("gat", 0.0).convs[:2]
    h = below(graph, torch.from_numpy(np.random.default_rng(2).standard_normal((local.num_owned, FEATURES))))
    assert isinstance(h, Handover) and h.loan is not None
    h.activation = graph.activation(EluDropout, 0.0, 1)
    y = above(graph, h)
    with pytest.raises(RuntimeError, match=words):
        ((y.rows if isinstance(y, Handover) else y).sum() + use(h.rows)).backward()


@pytest.mark.parametrize("kind, activation", [("gcn", ReluDropout), ("gat", EluDropout)])
def test_rows_that_were_saved_before(comm, local, kind, activation):
    """The activation is done in their place, or their gradient written over them: autograd raises an error."""
    graph, _ = make_graph(comm, local)
    conv = make_model(kind, 0.0).convs[-1]
    leaf = torch.randn(local.num_owned, conv.d_in, dtype=torch.float64, requires_grad=True)
    rows = leaf * 1
    beside = rows.square().sum()
    y = conv(graph, Handover(rows, activation=graph.activation(activation, 0.0, 1)))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        (y.sum() + beside).backward()


@contextlib.contextmanager
def without_collector():
    """No reference cycle is broken here: objects in one stay."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.mark.parametrize("kind", ["gat", "gcn", "sage"])
def test_nothing_is_kept_after_a_step(comm, local, kind, monkeypatch):
    """All matrices of a step are back while its loss is still there, and no cycle holds them.

    A forward pass alone gives its matrices back, too.
    """
    monkeypatch.setattr("hpcgnn.memory.arena.SMALL", 0)
    model, (graph, arena) = make_model(kind, 0.3), make_graph(comm, local)
    before = arena.taken
    with without_collector():
        for _ in range(2):
            loss = loss_of(model(graph), graph)
            assert arena.taken > before
            loss.backward()
            assert arena.taken == before
        loss = loss_of(model(graph), graph)
        assert arena.taken > before
        del loss
        assert arena.taken == before
        with torch.no_grad():
            loss_of(model(graph), graph)
        assert arena.taken == before
