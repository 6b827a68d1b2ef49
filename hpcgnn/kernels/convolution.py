"""A convolution in one call: what Python does between the kernels of a tile is serial, and there are many tiles."""

from typing import Any, NamedTuple

import torch

from . import library
from .aggregation import gather
from .kernel import DTYPES, kernel

_WEIGHTS = "strided float32 (depth, width)"
_GRADIENT = "optional written contiguous float32 (depth, width)"
_ONE_TILE = "optional contiguous float32 (tile_rows, depth)"
_COMMON = {"sums": "optional float32 (rows, streamed)", "outputs": "optional int32 [num_outputs]"}
_NO_MEMORY = "a convolution: no memory to work in"
#: `gather` of consecutive rows, without its result.
_SUMMED = {name: entry for name, entry in gather.table.items() if name not in ("y", "rows")}
_SUMMED |= {"x": "factor (sources, width)", "row_scale": "optional sum of x [num_rows]"}
_gathering = kernel("hg_gather", _SUMMED)(None)
_convolve = kernel(
    "hg_convolve",
    {
        "y": "written factor (rows, width)",
        "x": "factor (x_rows, depth)",
        "neighbour": "optional strided float32 (streamed, width)",
        "own": f"optional {_WEIGHTS}",
        "bias": "optional float32 [width]",
    }
    | _COMMON,
    without=(("outputs", "x_rows", "rows", "x"),),
    memory=_NO_MEMORY,
)(None)
_convolve_backward = kernel(
    "hg_convolve_backward",
    {
        "x": "factor (rows, depth)",
        "gy": "factor as y (y_rows, width)",
        "gx": "optional written type of x (rows, depth)",
        "g_neighbour": _GRADIENT.removeprefix("optional "),
        "g_own": _GRADIENT,
        "g_bias": "optional written float32 [width]",
        "neighbour": _WEIGHTS,
        "own": f"optional {_WEIGHTS}",
        "memory": "optional float32 (memory_rows, memory_columns)",
        "taken": _ONE_TILE,
        "spare": _ONE_TILE,
        "apart": _ONE_TILE,
    }
    | _COMMON,
    memory=_NO_MEMORY,
)(None)


class Gathering(NamedTuple):
    """What `gather` sums of consecutive rows: its arguments, and of indptr the part of these rows."""

    x: torch.Tensor
    indptr: torch.Tensor
    indices: torch.Tensor
    weight: torch.Tensor | None
    source_scale: torch.Tensor | None
    row_scale: torch.Tensor | None


#: Rows (n, F) of an aggregate, or what makes them.
Aggregate = torch.Tensor | Gathering


def convolves(*matrices: torch.Tensor | None) -> bool:
    """Whether `convolve` and `convolve_backward` are there for these: float32 or bfloat16, with our own products. Who
    watches kernels (see library.py) wants to see each.
    """
    native = (library.state.loaded or library.load()).native
    fits = native is not None and library.state.watch is None and torch.get_num_threads() >= native.own_products_from
    for each in matrices:
        fits = fits and (each is None or (each.dtype in DTYPES["factor"] and each.numel() > 0))
    return fits


def convolve(y: torch.Tensor, x: torch.Tensor, aggregate: Aggregate | None, **more: Any) -> None:
    """y = aggregate neighbour + x own + bias: the sums of `gather` and `multiply`, rounded once if y is narrower.

    Args:
        y: (n, d_out), float32 or bfloat16; may be the aggregate.
        x: (n, d_in), float32 or bfloat16; with outputs any number of rows.
        aggregate: float32, or what sums it; None: there is none.
        more: neighbour: W_n; None: the aggregate has d_out columns and is added as it is. own, bias: W_s and b, or
            None. outputs: int32 (n,), the rows of x that are computed, or None.

    Raises:
        ValueError, MemoryError: a wrong dtype, shape or layout; no memory.
    """
    _convolve(y, x, **_aggregated(aggregate, len(y)), **more)


def convolve_backward(
    gy: torch.Tensor, x: torch.Tensor, aggregate: Aggregate, tile: int, scale: float | None, **more: Any
) -> None:
    """gx = t W_n' + gy W_s', and g_neighbour, g_own, g_bias += x' t, x' gy, the sums of gy, for each tile of rows.

    Args:
        gy: (m, d_out), of all computed rows.
        x: (n, d_in), rows first .. first + n - 1 of all; it and gy are float32 or bfloat16.
        aggregate: t, of gy along the edges reversed.
        tile: rows that are worked on at a time.
        scale: of `relu_gradient`, which comes last; None: there is none.
        more: first. gx: (n, d_in), as x, or None; with scale x itself. g_neighbour, g_own and, only with that, g_bias.
            neighbour, own: W_n and W_s. outputs: int32 (m,), which of all rows are computed, or None. memory: (tile,
            d_out), where the aggregate is no tensor. spare: (tile, d_in) with scale and for gx of bfloat16; taken,
            apart: the same with outputs and own. All else is float32.

    Raises:
        ValueError, MemoryError: a wrong dtype, shape or layout; no memory.
    """
    if scale is not None:
        more |= {"relu": True, "scale": scale}
    _convolve_backward(x, gy, tile=tile, **_aggregated(aggregate, len(x)), **more)


def _aggregated(aggregate: Aggregate | None, rows: int) -> dict[str, Any]:
    if not isinstance(aggregate, Gathering):
        return {"sums": aggregate, "streamed": 0 if aggregate is None else aggregate.shape[-1]}
    filled = _gathering.filled(**aggregate._asdict(), num_rows=rows)
    return {"gather": filled, "streamed": aggregate.x.shape[1]}
