"""Layers whose states are made again: the gradients, how often a layer runs, and how many states there are at once."""

import weakref
from math import comb

import pytest
import torch

from hpcgnn.extras.meshes.remade_layers import remade_layers


class Stack:
    """Layers (x, total) -> (tanh(x w), total + x). runs: of a layer; most: states that were there at a time."""

    def __init__(self, count):
        draw = torch.Generator().manual_seed(2)
        self.weights = [torch.randn(1, generator=draw, dtype=torch.float64).requires_grad_() for _ in range(count)]
        self.layers = [lambda *state, weight=weight: self.run(weight, *state) for weight in self.weights]
        self.runs, self.now, self.most = 0, 0, 0

    def run(self, weight, x, total):
        self.runs += 1
        state = torch.tanh(x * weight)
        if not torch.is_grad_enabled():  # the memory of an array knows when the last tensor with it goes
            array = state.numpy().copy()
            self.now += 1
            weakref.finalize(array, self.gone)
            state = torch.from_numpy(array)
        self.most = max(self.most, self.now)
        return state, total + x

    def gone(self):
        self.now -= 1


@pytest.mark.parametrize("count, kept", [(1, 1), (2, 1), (5, 4), (5, 1), (10, 3), (15, 2), (16, 1)])
def test_gradients_runs_and_states(count, kept):
    draw, found = torch.Generator().manual_seed(count), []
    x, gy = torch.randn(7, generator=draw, dtype=torch.float64), torch.randn(2, 7, generator=draw, dtype=torch.float64)
    for remade in (False, True):
        stack, given = Stack(count), x.clone().requires_grad_()
        state = given, torch.zeros_like(x)
        if remade:
            state = remade_layers(stack.layers, kept, *state)
        else:
            for layer in stack.layers:
                state = layer(*state)
        torch.autograd.backward(state, list(gy))
        found.append([given.grad, *(w.grad for w in stack.weights)])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
    # Griewank and Walther, 2000, proposition 1, for `kept` + 1 states with the first: r is the most often that a layer
    # runs before its gradient.
    r = next(r for r in range(count + 1) if comb(kept + 1 + r, r) >= count)
    further = r * count - comb(kept + 1 + r, r - 1) if r else 0
    assert stack.runs == 1 + further + count
    assert stack.most <= kept + 3, "the kept ones, one that is read, one that is made, and the last"


def test_a_first_state_without_gradient():
    """The parameters behind it have theirs."""
    stack, x = Stack(3), torch.ones(7, dtype=torch.float64)
    torch.autograd.backward(remade_layers(stack.layers, 1, x, x), [x, x])
    assert all(weight.grad is not None for weight in stack.weights)
