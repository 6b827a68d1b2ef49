"""The loss of some rows of logits, and its gradient over logits that nothing else has."""

import pytest
import torch

from hpcgnn.memory.arena import Arena
from hpcgnn.ops.cross_entropy import cross_entropy


@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize("rows", [torch.tensor([0, 3, 4]), None])
def test_gradient(rows, saved):
    """As torch's. Logits that an operator has saved, or that are seen through a view, stay as they are."""
    weight, x = torch.randn(7, 5, requires_grad=True), torch.randn(6, 7)
    labels = torch.tensor([1, 0, 4]) if rows is not None else torch.tensor([1, 0, 4, 2, 2, 3])

    def made():
        return (x @ weight).tanh() if saved else x @ weight

    logits, places = made(), []
    place, before = logits.data_ptr(), logits.detach().clone()
    logits.register_hook(lambda gradient: places.append(gradient.data_ptr()))
    loss = cross_entropy(logits, rows, labels, Arena())
    (gradient,) = torch.autograd.grad(loss, weight)
    chosen = made() if rows is None else made()[rows]
    expected = torch.nn.functional.cross_entropy(chosen, labels, reduction="sum")
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(gradient, torch.autograd.grad(expected, weight)[0])
    assert (places == [place]) != saved and torch.equal(logits.detach(), before) == saved
    seen = made()
    cross_entropy(seen.view_as(seen), rows, labels, Arena()).backward()
    assert torch.equal(seen.detach(), before)
