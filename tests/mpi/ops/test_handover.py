"""Rows that one layer gives to the next with their memory: the refused uses, and that nothing is kept."""

import gc

import pytest
import torch

from hpcgnn.ops.draws import EluDropout, ReluDropout
from hpcgnn.ops.handover import Handover

from ..training import FEATURES, build_trainer, configure


def built(comm, path, kind, dropout=0.0):
    """(model, Graph, its Arena)."""
    options = {"heads": 2, "out_heads": 2, "attention_dropout": dropout, "keep_input": "never", "precision": "fp64"}
    trainer = build_trainer(comm, configure(path, model=kind, hidden=4, dropout=dropout, **options), "metis")
    return trainer.model, trainer.graph, trainer.buffers.arena


@pytest.mark.parametrize(
    "use, words",
    [
        (lambda rows: rows.register_hook(torch.clone) and 0.0, "something else has used it or changed its gradient"),
        (lambda rows: rows.sum(), "Use the rows of such a layer only once"),
    ],
    ids=["a copied gradient", "a sum"],
)
def test_rows_of_attention_that_somebody_else_uses(comm, graph, use, words):
    """The received gradient is right, but not at the place of the layer's own part."""
    model, seen, _ = built(comm, graph, "gat")
    below, above = model.convs[:2]
    h = below(seen, torch.ones(len(seen.ids), FEATURES, dtype=torch.float64))
    assert isinstance(h, Handover) and h.loan is not None
    h.activation = seen.activation(EluDropout, 0.0, 1)
    y = above(seen, h)
    with pytest.raises(RuntimeError, match=words):
        ((y.rows if isinstance(y, Handover) else y).sum() + use(h.rows)).backward()


def test_rows_that_cannot_be_taken(comm, graph):
    """Twice, or with a loan that does not come back: by a layer of another kind, or without an activation."""
    model, seen, _ = built(comm, graph, "gat")
    rows = torch.ones(len(seen.ids), FEATURES, dtype=torch.float64)
    for returns_loan in (False, True):
        with pytest.raises(RuntimeError, match="come with a loan; expected a layer of attention with an activation"):
            model.convs[0](seen, rows).take(returns_loan)
    once = Handover(rows)
    assert once.take()[0] is rows
    with pytest.raises(RuntimeError, match="can be taken once; use what the taker made of them"):
        once.take()


@pytest.mark.parametrize("kind, activation", [("gcn", ReluDropout), ("gat", EluDropout)])
def test_rows_that_were_saved_before(comm, graph, kind, activation):
    """The activation is done in their place, or their gradient written over them: autograd raises an error."""
    model, seen, _ = built(comm, graph, kind)
    conv = model.convs[-1]
    leaf = torch.ones(len(seen.ids), conv.d_in, dtype=torch.float64, requires_grad=True)
    rows = leaf * 1
    beside = rows.square().sum()
    y = conv(seen, Handover(rows, activation=seen.activation(activation, 0.0, 1)))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        (y.sum() + beside).backward()


@pytest.mark.parametrize("kind", ["gat", "gcn", "sage"])
def test_nothing_is_kept_after_a_step(comm, graph, kind, monkeypatch):
    """All matrices of a step are back while its loss is still there, and no cycle holds them.

    A forward pass alone gives its matrices back, too.
    """
    monkeypatch.setattr("hpcgnn.memory.arena.SMALL", 0)
    model, seen, arena = built(comm, graph, kind, 0.3)
    gc.collect()
    before = arena.taken
    gc.disable()  # which breaks cycles: objects in one stay
    try:
        for _ in range(2):
            loss = model(seen).square().sum()
            assert arena.taken > before
            loss.backward()
            assert arena.taken == before
        loss = model(seen).square().sum()
        assert arena.taken > before
        del loss
        assert arena.taken == before
        with torch.no_grad():
            model(seen).square().sum()
        assert arena.taken == before
    finally:
        gc.enable()
