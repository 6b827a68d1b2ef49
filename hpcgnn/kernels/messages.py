"""Messages over blocks of the adjacency that are a source's row with a map of the edge's features, reduced by row.

    m_e = z_j + e_e W + b, and ReLU of it if asked for (GINE, PNA)

Both directions are made at the owner of the destinations, a call for each block. No message is kept.

Only the compiled library has these kernels (`reduces_messages`). Without it the general rule (ops/propagate.py) does
the same.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch

from . import library
from .aggregation import ALL_ROWS, BLOCK, ROWS
from .attention import OWN_COLUMNS
from .interface import REDUCTIONS
from .kernel import kernel

_COMMON = {
    "x": "type of y (columns, width)",
    **BLOCK,
    "rows": ROWS,
    "weight": "optional contiguous type of y (depth, width)",
    "bias": "optional type of y [width]",
    "edge": "optional type of y (all_edges, depth)",
    "places": "optional index [edges]",
    **dict.fromkeys(("width", "times", "depth", "place_bytes", "relu", "reduce"), ...),
}
_NO_MEMORY = "messages: no memory for the partial results of a block"
_message_forward = kernel(
    "hg_message_forward",
    {
        "y": "written float (n, times * width)",
        "counts": "optional written type of y (n, 2 * width)",
        "numbers": "optional written int64 [n]",
    }
    | _COMMON,
    without=ALL_ROWS,
    memory=_NO_MEMORY,
)(None)
_message_backward = kernel(
    "hg_message_backward",
    {
        "y": "float (n, times * width)",
        "gradient": "type of y (n, times * width)",
        "g_x": "optional written type of y as back (returned, width)",
        "g_map": "optional written contiguous type of y (depth + 1, width)",
        "returns": "optional int32 [edges]",
    }
    | _COMMON,
    without=(*ALL_ROWS, OWN_COLUMNS),
    memory=_NO_MEMORY,
)(None)


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
    return library.load().native is not None and x.dtype in (torch.float32, torch.float64)


def _given(messages: RowMessages, x: torch.Tensor) -> dict[str, Any]:
    """The arguments that both directions have."""
    given = {"x": x, "bias": messages.bias, "width": x.shape[-1], "times": messages.columns, "relu": messages.relu}
    given |= {"reduce": REDUCTIONS["moments" if messages.moments else "sum"], "depth": 0, "place_bytes": 0}
    if messages.weight is None:
        return given
    if messages.edge is None or messages.places is None:
        raise ValueError("edge, places: expected torch tensors with weight, got None")
    given |= {"weight": messages.weight.contiguous(), "edge": messages.edge, "places": messages.places}
    return given | {"depth": len(messages.weight), "place_bytes": messages.places.element_size()}


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
    counts, edges = numbers or (None, None)
    if messages.moments and numbers is None:
        raise ValueError("numbers: expected them with moments, got None")
    _message_forward(y, counts, edges, indptr=indptr, indices=indices, rows=rows, **_given(messages, x))


def message_backward(
    messages: RowMessages,
    gradients: tuple[torch.Tensor | None, torch.Tensor | None],
    saved: tuple[torch.Tensor, torch.Tensor],
    x: torch.Tensor,
    **block: Any,
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
        x: as forwards.
        block: indptr, indices, rows, as forwards. returns: (E,) int32 or None: the row of g_x that each edge adds to,
            in place of its column.

    Raises:
        ValueError: a wrong dtype, shape or layout.
        MemoryError: no memory for partial results.
    """
    _message_backward(*saved, *gradients, **block, **_given(messages, x))
