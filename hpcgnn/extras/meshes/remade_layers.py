"""Layers whose states are made again for the gradient, with few of them in memory at a time.

The schedule is optimal (Griewank and Walther, 2000, algorithm 799, "revolve"): with c kept states, n layers need the
fewest further runs of a layer. A state that nobody else reads gives its rows of edges to the next layer, and its
gradient's to the layer before.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from hpcgnn.ops.operator_context import of_training
from hpcgnn.ops.propagate import overwriting_edges
from hpcgnn.ops.row_functions import weighed

#: Tensors between two layers.
State = tuple[torch.Tensor, ...]


def remade_layers(layers: Sequence[Callable[..., State]], most: int, *state: torch.Tensor) -> State:
    """The state behind all layers, of which the first has `state`, differentiably.

    `most` states are kept at a time, besides the first and the last. Parameters get their gradients added. Collective
    if the layers are.
    """
    if torch.is_grad_enabled():
        # Parameters may have gradients where the first state has none.
        return _Remade.apply(_Run(layers, most), torch.ones((), requires_grad=True), *state)
    for number, layer in enumerate(layers):
        with overwriting_edges(number > 0):
            state = layer(*state)
    return state


@functools.lru_cache(None)
def _cost(layers: int, most: int) -> tuple[int, int]:
    """(the fewest further runs of a layer, layers up to the first kept state) for the gradients of a chain."""
    if layers == 1:
        return 0, 0
    if most == 0:
        return layers * (layers - 1) // 2, layers - 1
    return min((n + _cost(layers - n, most - 1)[0] + _cost(n, most)[0], n) for n in range(1, layers))


class _Kept(torch.autograd.Function):
    """Its node has a state as autograd keeps tensors: in the forward pass it is in the account, or on a disk."""

    @staticmethod
    def forward(ctx: Any, one: torch.Tensor, *state: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(*state)
        return one.clone()


def _keep(state: State) -> Any:
    with torch.enable_grad():
        return _Kept.apply(torch.ones((), requires_grad=True), *state).grad_fn


class _Run:
    """kept: {number of a layer: the state before it, of `_keep`}."""

    def __init__(self, layers: Sequence[Callable[..., State]], most: int) -> None:
        self.layers, self.most = layers, most
        self.kept: dict[int, Any] = {}

    def forward(self, state: State) -> State:
        """The state behind the last layer. That before it is kept, too."""
        self.kept, last = {0: _keep(state)}, len(self.layers) - 1
        state = self.before(last)
        self.kept[last] = _keep(state)
        return self.layers[last](*state)

    def before(self, layer: int) -> State:
        """The state before a layer, from the nearest one that is kept. From then on none is kept from this layer on."""
        at = max(self.kept)
        state, ours = self.kept[at].saved_tensors, False
        if 0 < at == layer:
            del self.kept[at]
        while at < layer:
            _, number = _cost(layer + 1 - at, self.most + 1 - len(self.kept))
            for each in range(at, at + number):
                with torch.no_grad(), overwriting_edges(ours):
                    state, ours = self.layers[each](*state), True
            at += number
            if at < layer:
                self.kept[at], ours = _keep(state), False
        return state


class _Remade(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, run: _Run, one: torch.Tensor, *state: torch.Tensor) -> State:
        with of_training():
            behind = run.forward(tuple(x.detach() for x in state))
        ctx.run, ctx.first = run, [x.requires_grad for x in state]
        ctx.set_materialize_grads(False)
        return behind

    @staticmethod
    def backward(ctx: Any, *given: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        run, last = ctx.run, len(ctx.run.layers) - 1
        for layer in reversed(range(len(run.layers))):
            wanted = ctx.first if layer == 0 else [True] * len(given)
            with of_training():
                leaves = [x.detach().requires_grad_(w) for x, w in zip(run.before(layer), wanted, strict=True)]
            with torch.enable_grad(), overwriting_edges(layer < last):
                number = weighed(run.layers[layer](*leaves), given)
            given = ()  # their memory goes as soon as they are used
            if number is not None:
                number.backward()
            given = tuple(x.grad for x in leaves)
            del leaves, number  # or they would be there while the state before them is made
        return None, None, *given
