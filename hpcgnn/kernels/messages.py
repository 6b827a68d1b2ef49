"""Messages over blocks of the adjacency that are a source's row with a map of the edge's features, reduced by row.

    m_e = z_j + e_e W + b, and ReLU of it if asked for (GINE, PNA)

Both directions are made at the owner of the destinations, a call for each block. No message is kept.

Only the compiled library has these kernels (`reduces_messages`). Without it the general rule (ops/propagate.py) does
the same.
"""

from dataclasses import dataclass, replace
from typing import cast

import torch

from . import checks
from .attention import structure
from .interface import REDUCTIONS
from .library import kernels, load
from .native import Native


@dataclass(frozen=True)
class RowMessages:
    """How messages are made, and what they are reduced to.

    Attributes:
        moments: whether the result of a row is [mean | largest | least | squared distances from the mean] of its
            messages, (4 F); else their sum, (F).
        relu: whether a message is cut off at 0.
        weight: (K, F) of the edges' features, or None.
        bias: (F,) or None.
        edge: (E_p, K) features, with weight.
        places: int32 or int64 (E,), the row in `edge` of each edge of the block, with weight.
    """

    moments: bool = False
    relu: bool = False
    weight: torch.Tensor | None = None
    bias: torch.Tensor | None = None
    edge: torch.Tensor | None = None
    places: torch.Tensor | None = None

    def at(self, places: torch.Tensor | None) -> "RowMessages":
        """The same for the edges of a block."""
        return self if self.weight is None else replace(self, places=places)

    @property
    def columns(self) -> int:
        """How many columns a result has for each column of a message."""
        return 4 if self.moments else 1


def reduces_messages(x: torch.Tensor) -> bool:
    """Whether the two functions below are there for rows of this type."""
    return isinstance(load().kernels, Native) and x.dtype in (torch.float32, torch.float64)


def _call(
    function: str,
    messages: RowMessages,
    x: torch.Tensor,
    indptr: torch.Tensor,
    tensors: dict[str, torch.Tensor | None],
) -> None:
    """Check what both directions have, and call."""
    y, indices = cast(torch.Tensor, tensors["y"]), cast(torch.Tensor, tensors["indices"])
    dtype, width, weight, places = y.dtype, x.shape[1], messages.weight, messages.places
    checks.matrix("y", y, (torch.float32, torch.float64), columns=messages.columns * width)
    checks.matrix("x", x, (dtype,))
    checks.vector("bias", messages.bias, dtype, width, optional=True)
    structure(indptr, indices, tensors["rows"], len(y), {}, dtype, 1)
    if weight is not None:
        checks.matrix("weight", weight, (dtype,), columns=width)
        checks.matrix("edge", messages.edge, (dtype,), columns=len(weight))
        wide = places is not None and places.dtype == torch.int64
        checks.vector("places", places, torch.int64 if wide else torch.int32, len(indices))
        weight = weight.contiguous()
    given = tensors | {"x": x, "indptr": indptr, "weight": weight, "bias": messages.bias}
    if weight is not None:
        given |= {"edge": messages.edge, "places": places}
    kernels().messages(
        function,
        given,
        num_rows=len(indptr) - 1,
        width=width,
        depth=0 if weight is None else len(weight),
        place_bytes=0 if weight is None or places is None else places.element_size(),
        relu=messages.relu,
        reduce=REDUCTIONS["moments" if messages.moments else "sum"],
    )


def message_forward(
    messages: RowMessages,
    y: torch.Tensor,
    numbers: tuple[torch.Tensor, torch.Tensor] | None,
    x: torch.Tensor,
    indptr: torch.Tensor,
    indices: torch.Tensor,
    rows: torch.Tensor | None = None,
) -> None:
    """Takes the edges of one block into the results of the rows it stores.

    Ranges of indices are not checked (see `check_block`). Results do not depend on the number of threads.

    Args:
        messages: RowMessages.
        y: (n, F), or (n, 4 F) of moments; before the first block 0, but -inf for the largest and inf for the least.
        numbers: of moments, 0 before the first block: (n, 2 F) of y's type, how many edges have the largest and the
            least, and int64 (n,), how many edges there are.
        x: (columns, F); float32 or float64, as y.
        indptr, indices, rows: the block.

    Raises:
        ValueError: a wrong dtype, shape or layout.
        MemoryError: no memory for partial results.
    """
    tensors: dict[str, torch.Tensor | None] = {"y": y, "indices": indices, "rows": rows}
    if messages.moments:
        counts, edges = cast(tuple[torch.Tensor, torch.Tensor], numbers)
        checks.matrix("counts", counts, (y.dtype,), rows=len(y), columns=2 * x.shape[1])
        checks.vector("numbers", edges, torch.int64, len(y))
        tensors |= {"counts": counts, "numbers": edges}
    _call("hg_message_forward", messages, x, indptr, tensors)
    for written in (y, *(numbers or ())):
        checks.written(written)


def message_backward(
    messages: RowMessages,
    gradients: tuple[torch.Tensor | None, torch.Tensor | None],
    saved: tuple[torch.Tensor, torch.Tensor],
    x: torch.Tensor,
    indptr: torch.Tensor,
    indices: torch.Tensor,
    rows: torch.Tensor | None = None,
    returns: torch.Tensor | None = None,
) -> None:
    """Adds the gradients that come over the edges of one block, at the owner of the destinations.

    A message of a sum has the gradient g of its row. One of moments has, of gradients [of mean | of largest | of least
    | of distances]: g_mean + (m == largest) g_largest + (m == least) g_least + (m - mean) g_distances. Results do not
    depend on the number of threads, bit for bit.

    Args:
        messages: RowMessages, as forwards.
        gradients: (g_x or None, g_map (K + 1, F) or None), added to: g_x has a row for each column, or as many as
            `returns` names; g_map is of weight and, in its last row, of bias.
        saved: (y, the gradients of a row's messages), both (n, F), or (n, 4 F) of moments. Only moments read y.
        x, indptr, indices, rows: as forwards.
        returns: (E,) int32 or None: the row of g_x that each edge adds to, in place of its column.

    Raises:
        ValueError: a wrong dtype, shape or layout.
        MemoryError: no memory for partial results.
    """
    (g_x, g_map), (y, gradient), depth = gradients, saved, 0 if messages.weight is None else len(messages.weight)
    checks.matrix("gradient", gradient, (y.dtype,), rows=len(y), columns=y.shape[1])
    if g_x is not None:
        checks.matrix("g_x", g_x, (y.dtype,), rows=len(x) if returns is None else None, columns=x.shape[1])
    if g_map is not None:
        checks.matrix("g_map", g_map, (y.dtype,), rows=depth + 1, columns=x.shape[1])
    checks.vector("returns", returns, torch.int32, len(indices), optional=True)
    tensors: dict[str, torch.Tensor | None] = {"y": y, "indices": indices, "rows": rows, "returns": returns}
    _call("hg_message_backward", messages, x, indptr, tensors | {"gradient": gradient, "back": g_x, "g_map": g_map})
    for written in gradients:
        if written is not None:
            checks.written(written)
