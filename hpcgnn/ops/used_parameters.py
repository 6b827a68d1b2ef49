"""Which parameters a function uses, found by running it once on no edges and walking the graph that autograd made."""

from collections.abc import Callable, Sequence
from typing import Any

import torch


def captured_parameters(
    function: Callable[..., Any], inputs: Sequence[torch.Tensor]
) -> tuple[torch.Tensor | tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]:
    """(the result of `function` for no rows, the leaf tensors with requires_grad that it uses and that are no inputs).

    inputs: tensors (n, …); only their widths and dtypes matter. Raises ValueError if the function uses a tensor that
    was computed from parameters outside of it: its gradient would have to be carried on once for every tile.
    """
    leaves = [x.detach()[:0].requires_grad_(x.is_floating_point()) for x in inputs]
    with torch.enable_grad():
        first = torch.ones((), requires_grad=True).clone().grad_fn
        assert first is not None, "the clone of a leaf has a node"
        before = first._sequence_nr()
        with torch.random.fork_rng(devices=[]):
            result = function(*leaves)
    outputs = result if isinstance(result, tuple) else (result,)
    if not all(isinstance(x, torch.Tensor) for x in outputs):
        raise ValueError(f"propagate: expected tensors from the message function, got {type(result).__name__}")
    found, seen, todo = {}, set(), [x.grad_fn for x in outputs if x.grad_fn is not None]
    known = {id(x) for x in leaves}
    while todo:
        node = todo.pop()
        if node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            if id(node.variable) not in known:
                found[id(node.variable)] = node.variable
            continue
        if node._sequence_nr() < before:
            raise ValueError(
                f"propagate: the message function uses a tensor that was computed outside of it (by {node.name()}); "
                "compute it inside from the parameters, or give it as x_src, x_dst or edge"
            )
        todo += [following for following, _ in node.next_functions if following is not None]
    detached = tuple(x.detach() for x in outputs)
    return detached if isinstance(result, tuple) else detached[0], tuple(found.values())
