"""A convolution tile by tile in one call: what Python does between the kernels of a tile is serial, and many threads
want small tiles.
"""

from typing import NamedTuple

import torch

from . import checks
from .interface import Pointer, as_field, filled
from .library import kernels
from .native import Native


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
    """Whether `convolve` and `convolve_backward` are there for these: float32, with our own products. Who watches
    kernels (see library.py) wants to see each.
    """
    native = kernels()
    fits = (each is None or (each.dtype == torch.float32 and each.numel() > 0) for each in matrices)
    return isinstance(native, Native) and native.has_products(torch.float32) and all(fits)


def convolve(
    y: torch.Tensor,
    x: torch.Tensor,
    aggregate: Aggregate,
    neighbour: torch.Tensor | None,
    own: torch.Tensor | None,
    bias: torch.Tensor | None,
    outputs: torch.Tensor | None,
    tile: int,
    memory: torch.Tensor | None,
    taken: torch.Tensor | None,
) -> None:
    """y = aggregate neighbour + x own + bias, the same sums as of `gather` and `multiply` for each tile of rows.

    Args:
        y: (n, d_out), may be the aggregate.
        x: (n, d_in); with outputs any number of rows.
        neighbour: W_n; None: the aggregate has d_out columns and is added as it is.
        own, bias: W_s and b, or None.
        outputs: int32 (n,), the rows of x that are computed, or None.
        tile: rows that are worked on at a time.
        memory: (tile or n, columns of the aggregate), None where that is a tensor other than y; taken: (tile or n,
            d_in) with outputs.

    Raises:
        ValueError, MemoryError: a wrong dtype, shape or layout; no memory.
    """
    tensors = {"neighbour": neighbour, "own": own, "bias": bias, "outputs": outputs, "taken": taken}
    _run("hg_convolve", len(y), y, x, aggregate, tile, tensors | {"memory": memory})
    checks.written(y)


def convolve_backward(
    gx: torch.Tensor | None,
    g_neighbour: torch.Tensor,
    g_own: torch.Tensor | None,
    g_bias: torch.Tensor | None,
    x: torch.Tensor,
    gy: torch.Tensor,
    aggregate: Aggregate,
    neighbour: torch.Tensor,
    own: torch.Tensor | None,
    first: int,
    outputs: torch.Tensor | None,
    tile: int,
    memory: torch.Tensor | None,
    spare: torch.Tensor | None,
    taken: torch.Tensor | None,
    apart: torch.Tensor | None,
    scale: float | None,
) -> None:
    """gx = t W_n' + gy W_s', and g_neighbour, g_own, g_bias += x' t, x' gy, the sums of gy, for each tile of rows.

    Args:
        gx: (n, d_in) or None; with scale x itself.
        g_bias: only with g_own.
        x: (n, d_in), rows first .. first + n - 1 of all.
        gy: (m, d_out), of all computed rows.
        aggregate: t, of gy along the edges reversed.
        outputs: int32 (m,), which of all rows are computed, or None.
        tile, memory: as of `convolve`; spare: (tile, d_in) with scale; taken, apart: the same with outputs and own.
        scale: of `relu_gradient`, which comes last; None: there is none.

    Raises:
        ValueError, MemoryError: a wrong dtype, shape or layout; no memory.
    """
    tensors = {"gx": gx, "g_neighbour": g_neighbour, "g_own": g_own, "g_bias": g_bias, "neighbour": neighbour}
    tensors |= {"own": own, "outputs": outputs, "spare": spare, "taken": taken, "apart": apart}
    if apart is not None:
        tensors["places"] = torch.empty(len(apart), dtype=torch.int32)
    more = {} if scale is None else {"relu": True, "scale": scale}
    _run("hg_convolve_backward", len(x), gy, x, aggregate, tile, tensors | {"memory": memory}, first=first, **more)
    for tensor in (gx, g_neighbour, g_own, g_bias):
        if tensor is not None:
            checks.written(tensor)


def _run(
    function: str,
    rows: int,
    y: torch.Tensor,
    x: torch.Tensor,
    aggregate: Aggregate,
    tile: int,
    tensors: dict[str, torch.Tensor | None],
    **more: float,
) -> None:
    tensors = tensors | {"x": x, "y": y}
    outputs = tensors["outputs"]
    for name, tensor in tensors.items():
        if tensor is not None and tensor.dim() == 2 and name not in ("neighbour", "own"):
            checks.matrix(name, tensor, (torch.float32,))
    if outputs is not None:
        checks.vector("outputs", outputs, torch.int32, None)
    if isinstance(aggregate, torch.Tensor):
        checks.matrix("aggregate", aggregate, (torch.float32,), rows=rows)
        tensors["sums"] = aggregate
    else:
        more["gather"] = _gathering(aggregate, rows)
    for name in ("neighbour", "own"):
        if (weight := tensors.get(name)) is not None:
            checks.weights(weight, x, y.shape[1])
            more[f"{name}_down"], more[f"{name}_across"] = weight.stride()
    kernels().convolve(
        function,
        tensors,
        rows=rows,
        num_outputs=0 if outputs is None else len(outputs),
        tile=tile,
        streamed=(aggregate if isinstance(aggregate, torch.Tensor) else aggregate.x).shape[1],
        depth=x.shape[1],
        width=y.shape[1],
        **more,
    )


def _gathering(of: Gathering, rows: int) -> Pointer:
    checks.matrix("x", of.x, (torch.float32,))
    checks.vector("indptr", of.indptr, torch.int64, rows + 1)
    checks.vector("indices", of.indices, torch.int32, None)
    checks.vector("weight", of.weight, torch.float32, len(of.indices), optional=True)
    checks.vector("source_scale", of.source_scale, torch.float32, len(of.x), optional=True)
    checks.vector("row_scale", of.row_scale, torch.float32, rows, optional=True)
    return as_field(filled("hg_gather_args", of._asdict(), width=of.x.shape[1]))
