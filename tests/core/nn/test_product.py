"""A linear layer as one operator, and an activation that comes with its rows."""

import pytest
import torch

from hpcgnn.ops.draws import ReluDropout
from hpcgnn.ops.product import product

DRAWS = torch.Generator().manual_seed(3)
X, WEIGHT, BIAS = (torch.randn(*shape, dtype=torch.float64, generator=DRAWS) for shape in ((9, 4), (4, 5), (5,)))


def gradients(function, learned, scale):
    tensors = [
        each.clone().requires_grad_(bool(wanted)) for each, wanted in zip((X, WEIGHT, BIAS), learned, strict=True)
    ]
    (function(*tensors).square().sum() * scale).backward()
    return [each.grad for each in tensors]


@pytest.mark.parametrize("learned", [(1, 1, 1), (1, 0, 0), (0, 1, 0), (1, 0, 1)])
def test_gradients_of_what_is_learned(learned):
    for found, right in zip(
        gradients(product, learned, 1.0), gradients(lambda x, w, b: x @ w + b, learned, 1.0), strict=True
    ):
        assert (found is None) == (right is None)
        if right is not None:
            torch.testing.assert_close(found, right, rtol=1e-12, atol=1e-12)


def test_gradients_of_gradients_and_of_expanded_ones():
    assert torch.autograd.gradcheck(product, [each.clone().requires_grad_() for each in (X, WEIGHT, BIAS)])
    assert torch.autograd.gradgradcheck(product, [each.clone().requires_grad_() for each in (X, WEIGHT, BIAS)])
    weight = WEIGHT.clone().requires_grad_()
    product(X, weight).sum().backward()
    torch.testing.assert_close(weight.grad, X.sum(0)[:, None].expand(4, 5))


def test_other_shapes_are_those_of_torch():
    deep = torch.stack([X, 2 * X])
    torch.testing.assert_close(product(deep, WEIGHT, BIAS), deep @ WEIGHT + BIAS)
    torch.testing.assert_close(product(X[0], WEIGHT), X[0] @ WEIGHT)
    assert product(X[:0], WEIGHT, BIAS).shape == (0, 5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_an_activation_that_is_done_leaves_its_gradient(dtype):
    x, ids = X.to(dtype), torch.arange(9)
    relu = ReluDropout(ids, key=5, p=0.5)
    given = x.clone().requires_grad_()
    right = relu(given * 1)
    right.sum().backward()
    rows = right.detach().clone().requires_grad_()
    done = ReluDropout(ids, key=5, p=0.5, done=True)(rows)
    assert torch.equal(done, right)
    done.sum().backward()
    assert torch.equal(rows.grad, given.grad)
