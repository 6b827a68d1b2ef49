"""The loss of some rows of logits, and its gradient."""

import pytest
import torch

from hpcgnn.memory.arena import Arena
from hpcgnn.ops.losses import cross_entropy


@pytest.mark.parametrize("rows", [torch.tensor([0, 3, 4]), None])
def test_gradient(rows):
    """As torch's. Logits stay as they are."""
    logits = torch.randn(6, 5, requires_grad=True)
    before, labels = logits.detach().clone(), torch.tensor([1, 0, 4] if rows is not None else [1, 0, 4, 2, 2, 3])
    loss = cross_entropy(logits, rows, labels, Arena())
    expected = torch.nn.functional.cross_entropy(logits if rows is None else logits[rows], labels, reduction="sum")
    torch.testing.assert_close(loss, expected)
    found, right = (torch.autograd.grad(each, logits)[0] for each in (loss, expected))
    torch.testing.assert_close(found, right)
    assert torch.equal(logits.detach(), before)
