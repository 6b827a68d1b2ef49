"""Perceptrons of many rows: linear maps with an activation in between, and layer norm at the end.

A function of some inputs' rows is made of one: the first map is split between them. Where all maps behind it are square
and the activation is ReLU or ELU, it is one kernel (chain.py) with its gradient, which keeps nothing. Else it
is torch's, for a tile of rows (ops/row_functions.py).
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from hpcgnn import kernels
from hpcgnn.extras.meshes.chain import chain, chain_backward
from hpcgnn.extras.meshes.mapped_rows import map_rows
from hpcgnn.memory.arena import Arena
from hpcgnn.nn.linear import Linear
from hpcgnn.ops.row_functions import RowFunction, RowKernel, Rows, Tensors
from hpcgnn.ops.row_tiles import picked

ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": functional.relu,
    "elu": functional.elu,
    "gelu": functional.gelu,
    "silu": functional.silu,
    "tanh": torch.tanh,
}
#: What the kernel knows.
_CHAINED = ("relu", "elu")


@dataclass(frozen=True)
class Part:
    """How an input enters: by these rows of the first map's weight, None: it is a product already, with the bias in
    one of them. added: whether the input is added to the result.
    """

    of_first: slice | None = None
    added: bool = False

    @property
    def kind(self) -> str:
        """'added', 'product', or 'first': rows that the first map is applied to."""
        return "added" if self.added else "product" if self.of_first is None else "first"


class Perceptron(nn.Module):
    """forward(x (n, d_in)) -> (n, d_out).

    widths: of the input, of hidden rows, of the output. norm: whether layer norm follows.
    """

    def __init__(self, widths: list[int], activation: str, dtype: torch.dtype, norm: bool = True) -> None:
        super().__init__()
        self.linears = nn.ModuleList(Linear(a, b, dtype=dtype) for a, b in itertools.pairwise(widths))
        self.norm = nn.LayerNorm(widths[-1], dtype=dtype) if norm else None
        self.activation = activation
        last = widths[-1] != widths[-2]  # a map to another width, behind the square ones
        self._square = len(widths) - 2 - last
        self._chained = self._square > 0 and activation in _CHAINED and not (norm and last)

    @property
    def first(self) -> Any:
        """The first map, a Linear."""
        return self.linears[0]

    def rows(self, arena: Arena, *parts: Part) -> RowFunction:
        """The perceptron as a function of rows of so many inputs, for `map_rows` and the like, in this pass. Its output
        is as wide as its hidden rows. arena: of the rows of a tile.
        """
        return _Chain(self, arena, parts) if self._chained else lambda *inputs: self._of(parts, *inputs)

    def map(self, arena: Arena, x: torch.Tensor) -> torch.Tensor:
        """The result for x, where x is kept, and for an output of another width the last hidden rows."""
        y = map_rows(arena, self.rows(arena, Part(slice(None))), x)
        last, act = list[Any](self.linears)[1 + self._square :], ACTIVATIONS[self.activation]
        return map_rows(arena, lambda rows: last[0](act(rows)), y) if self._chained and last else y

    def _of(self, parts: Sequence[Part], *inputs: torch.Tensor) -> torch.Tensor:
        z: Any = 0 if any(part.of_first is None for part in parts) else self.first.bias
        y: Any = 0
        for x, part in zip(inputs, parts, strict=True):
            z = z + (x if part.of_first is None else x @ self.first.weight[part.of_first])
            y = y + x if part.added else y
        for linear in list[Any](self.linears)[1:]:
            z = linear(ACTIVATIONS[self.activation](z))
        return y + (z if self.norm is None else self.norm(z))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self._of((Part(slice(None)),), x)


class _Chain(RowKernel):
    """A Perceptron by `chain`. An input that is added goes through the kernel's own product, the others' products
    come before it: there may be one, or two that are products already.
    """

    def __init__(self, of: Perceptron, arena: Arena, parts: Sequence[Part]) -> None:
        # Their sizes are a tile's again and again: from the allocator they would be fresh pages each time.
        self._arena = arena
        maps = list[Any](of.linears)[1 : 1 + of._square]
        self.width, self._elu, self._parts = of.first.weight.shape[1], of.activation == "elu", parts
        made = {"weights": torch.cat([each.weight for each in maps]), "biases": torch.cat([each.bias for each in maps])}
        self._epsilon = 0.0
        if of.norm is not None:
            made |= {"scale": of.norm.weight, "shift": of.norm.bias}
            self._epsilon = of.norm.eps
        for part in parts:
            if part.of_first is not None:
                made["own" if part.added else "first"] = of.first.weight[part.of_first]
        if "first" in made:
            made["bias"] = of.first.bias
        self._names, self.parameters = [*made], (*made.values(),)

    def _given(self, inputs: Sequence[Rows], parameters: Tensors) -> dict[str, Any]:
        """The kernel's arguments; `first` and `bias` are taken by what comes before it."""
        given: dict[str, Any] = dict(zip(self._names, parameters, strict=True))
        given |= {"elu": self._elu, "epsilon": self._epsilon}
        first, bias = given.pop("first", None), given.pop("bias", None)
        for part, (x, index) in zip(self._parts, inputs, strict=True):
            if part.added:
                given["x"] = picked(x, index)
            elif part.of_first is not None:
                given["z"] = self._empty(len(x if index is None else index), x)
                kernels.multiply(given["z"], picked(x, index), first, bias)
            else:
                name = "more" if "z" in given else "z"
                given |= {name: x, f"{name}_index": index}
        return given

    def _empty(self, rows: int, like: torch.Tensor) -> torch.Tensor:
        return self._arena.empty(rows, self.width, dtype=like.dtype)

    def forward(self, inputs: Sequence[Rows], parameters: Tensors, out: torch.Tensor | None = None) -> torch.Tensor:
        given = self._given(inputs, parameters)
        index = given.get("z_index")
        y = self._empty(len(given["z"] if index is None else index), given["z"]) if out is None else out
        chain(y, **given)
        return y

    def backward(
        self,
        gy: Rows,
        inputs: Sequence[Rows],
        parameters: Tensors,
        sums: Tensors,
        wanted: Sequence[torch.Tensor | bool],
    ) -> list[torch.Tensor | None]:
        given, total = self._given(inputs, parameters), dict(zip(self._names, sums, strict=True))
        given.pop("shift", None)
        rows = len(gy[0] if gy[1] is None else gy[1])
        places = {part.kind: x for part, x in zip(self._parts, wanted, strict=True) if isinstance(x, torch.Tensor)}
        gz = gx = places["product"] if "product" in places else self._empty(rows, gy[0])
        if "own" in total:
            gx = places["added"] if "added" in places else self._empty(rows, gy[0])
            given |= {"gx": gx, "g_own": total["own"]}
        if "scale" in total:
            given["g_norm"] = gz.new_zeros(2, self.width)
        chain_backward(gz, total["weights"], total["biases"], gy[0], gy_index=gy[1], **given)
        for name, g in zip(("scale", "shift"), given.get("g_norm", ()), strict=False):
            total[name] += g
        found: list[torch.Tensor | None] = []
        for part, (x, index), place in zip(self._parts, inputs, wanted, strict=True):
            if part.kind != "first":
                found.append(gx if part.added else gz)
            else:
                of_x = place if isinstance(place, torch.Tensor) else None
                if place is True:
                    of_x = gz.new_empty(rows, x.shape[1])
                first = parameters[self._names.index("first")]
                kernels.project_backward(of_x, total["first"], picked(x, index), gz, first, y_sums=total["bias"])
                found.append(of_x)
        return found
