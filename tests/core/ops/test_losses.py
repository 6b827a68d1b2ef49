"""Losses of some rows of logits against torch's: the plain one, and with smoothed labels and weights of classes over
several tiles of rows.
"""

import pytest
import torch
import torch.nn.functional as F

from hpcgnn.memory.arena import Arena
from hpcgnn.ops import row_tiles
from hpcgnn.ops.losses import cross_entropy, soft_cross_entropy


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("some", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_loss_and_gradient(monkeypatch, dtype, some, weighted):
    monkeypatch.setattr(row_tiles, "tile_rows", lambda: 16)
    draw = torch.Generator().manual_seed(1)
    logits = (torch.randn(70, 9, generator=draw, dtype=torch.float64) * 4).to(dtype)
    rows = torch.nonzero(torch.rand(70, generator=draw) < 0.6).squeeze(1) if some else None
    labels = torch.randint(9, (70,), generator=draw)[: 70 if rows is None else len(rows)]
    weights = torch.rand(9, generator=draw, dtype=torch.float64) + 0.1 if weighted else None
    x, wanted = logits.clone().requires_grad_(), logits.double().requires_grad_()
    found = soft_cross_entropy(x, rows, labels, 0.2, weights, Arena())
    (3 * found).backward()
    chosen = wanted if rows is None else wanted[rows]
    right = F.cross_entropy(chosen, labels, weights, reduction="sum", label_smoothing=0.2)
    (3 * right).backward()
    close = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2}[dtype]
    assert found.dtype == dtype and float(found.detach()) == pytest.approx(float(right.detach()), rel=close)
    torch.testing.assert_close(x.grad.double(), wanted.grad, rtol=close, atol=close)


@pytest.mark.parametrize("rows", [torch.tensor([0, 3, 4]), None])
def test_plain_loss(rows):
    """Logits stay as they are. No rows have no loss."""
    logits = torch.randn(6, 5, requires_grad=True)
    before, labels = logits.detach().clone(), torch.tensor([1, 0, 4] if rows is not None else [1, 0, 4, 2, 2, 3])
    loss = cross_entropy(logits, rows, labels, Arena())
    expected = F.cross_entropy(logits if rows is None else logits[rows], labels, reduction="sum")
    torch.testing.assert_close(loss, expected)
    found, right = (torch.autograd.grad(each, logits)[0] for each in (loss, expected))
    torch.testing.assert_close(found, right)
    assert torch.equal(logits.detach(), before)
    assert float(soft_cross_entropy(logits[:0], None, labels[:0], 0.1, None, Arena())) == 0
