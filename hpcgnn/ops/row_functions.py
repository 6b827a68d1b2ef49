"""Functions of rows that are differentiated some rows at a time: the parameters that they use, their gradients.

Hidden rows exist for a tile. The gradient makes them again, by autograd or by a RowKernel.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch

from hpcgnn.ops.row_tiles import KERNEL_TILES, edge_tile_bytes, picked

#: (a matrix, which of its rows: int32, None: all of them).
Rows = tuple[torch.Tensor, torch.Tensor | None]
Tensors = Sequence[torch.Tensor]


class RowKernel(ABC):
    """A function of rows that knows its gradient. No tile of it passes through autograd.

    Attributes:
        width: of its result.
        parameters: tensors with a gradient, besides rows; these may be results themselves.
    """

    width: int
    parameters: tuple[torch.Tensor, ...]

    @abstractmethod
    def forward(self, inputs: Sequence[Rows], parameters: Tensors, out: torch.Tensor | None = None) -> torch.Tensor:
        """The result (n, width) of n rows of each input, in `out` if that is given. parameters: as above, detached."""

    @abstractmethod
    def backward(
        self,
        gy: Rows,
        inputs: Sequence[Rows],
        parameters: Tensors,
        sums: Tensors,
        wanted: Sequence[torch.Tensor | bool],
    ) -> list[torch.Tensor | None]:
        """The gradients of each input's rows, if they are wanted: in this tensor, or in any. sums += those of
        parameters.
        """


#: A function of rows (n, …), differentiable, or one that knows its gradient.
RowFunction = Callable[..., Any] | RowKernel


def parameters_of(function: RowFunction, inputs: Sequence[torch.Tensor]) -> tuple[Any, tuple[torch.Tensor, ...]]:
    """(the result for no rows, the parameters). Raises the errors of `captured_parameters`."""
    if isinstance(function, RowKernel):
        return inputs[0].new_empty(0, function.width), function.parameters
    return captured_parameters(function, inputs)


def result_of(
    function: RowFunction, inputs: Sequence[Rows], parameters: Tensors, out: torch.Tensor | None = None
) -> Any:
    """The function's result for chosen rows, in `out` if that is given."""
    if isinstance(function, RowKernel):
        return function.forward(inputs, parameters, out)
    result = function(*(picked(x, index) for x, index in inputs))
    return result if out is None else out.copy_(result)


def add_row_gradients(
    function: RowFunction,
    inputs: Sequence[Rows],
    parameters: Tensors,
    sums: Sequence[torch.Tensor | None],
    given: Callable[[Any], Any],
    out: Sequence[torch.Tensor | None] | None = None,
) -> list[torch.Tensor]:
    """The gradients of the rows of inputs, of those that have a sum.

    sums: of each input and parameter, or None: not wanted. Those of parameters get their gradients added.
    given: the gradient of a result, or of several; of None, for a RowKernel, the gradient as Rows.
    out: where the gradients of each input's rows go, None for one that is not wanted; or None: anywhere.
    """
    wanted, of_parameters = [x is not None for x in sums[: len(inputs)]], sums[len(inputs) :]
    if isinstance(function, RowKernel):
        totals = [torch.zeros_like(p) if s is None else s for p, s in zip(parameters, of_parameters, strict=True)]
        places = wanted if out is None else [False if x is None else x for x in out]
        every = function.backward(given(None), inputs, parameters, totals, places)
        return [g for g, w in zip(every, wanted, strict=True) if w and g is not None]
    leaves = [picked(x, index).detach().requires_grad_(w) for (x, index), w in zip(inputs, wanted, strict=True)]
    asked = [p for p, s in zip(parameters, of_parameters, strict=True) if s is not None]
    with torch.enable_grad():
        result = function(*leaves)
    outputs = result if isinstance(result, tuple) else (result,)
    detached = tuple(x.detach() for x in outputs)
    with torch.no_grad():
        back = given(detached if isinstance(result, tuple) else detached[0])
    rows = [x for x, w in zip(leaves, wanted, strict=True) if w]
    found = gradients(outputs, back if isinstance(back, tuple) else (back,), [*rows, *asked])
    for total, g in zip((s for s in of_parameters if s is not None), found[len(rows) :], strict=True):
        total += g
    for place, g in zip((x for x in out or () if x is not None), found, strict=False):
        place.copy_(g)
    return found[: len(rows)]


def tile_bytes(function: RowFunction) -> int:
    """What the rows of a tile may take together."""
    return edge_tile_bytes() * (KERNEL_TILES if isinstance(function, RowKernel) else 1)


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
        raise ValueError(f"expected tensors from the function of rows, got {type(result).__name__}")
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
                f"the function of rows uses a tensor that was computed outside of it (by {node.name()}); compute it "
                "inside from the parameters, or give it as rows"
            )
        todo += [following for following, _ in node.next_functions if following is not None]
    detached = tuple(x.detach() for x in outputs)
    return detached if isinstance(result, tuple) else detached[0], tuple(found.values())


class _Weighed(torch.autograd.Function):
    """A number whose gradients are the given ones: torch loads SymPy where it is given gradients itself."""

    @staticmethod
    def forward(ctx: Any, given: Sequence[torch.Tensor], *outputs: torch.Tensor) -> torch.Tensor:
        ctx.given = given
        return outputs[0].new_zeros(())

    @staticmethod
    def backward(ctx: Any, one: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        given, ctx.given = ctx.given, ()
        return None, *given


def weighed(outputs: Sequence[torch.Tensor], given: Sequence[torch.Tensor | None]) -> torch.Tensor | None:
    """A number whose gradients with respect to outputs are the given ones; None if there is none."""
    pairs = [(x, g) for x, g in zip(outputs, given, strict=True) if x.requires_grad and g is not None]
    with torch.enable_grad():
        return _Weighed.apply([g for _, g in pairs], *(x for x, _ in pairs)) if pairs else None


def gradients(
    outputs: Sequence[torch.Tensor], given: Sequence[torch.Tensor], asked: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """The gradients of `asked` from the given ones of outputs: zeros where these do not depend on one."""
    number = weighed(outputs, given) if asked else None
    if number is None:
        return [torch.zeros_like(x) for x in asked]
    found = torch.autograd.grad(number, asked, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for x, g in zip(asked, found, strict=True)]
