"""The product of an attention layer's input with its weights, with the activation before it, and backwards all
gradients.

It is one pass if the kernels can. Otherwise it takes some rows at a time, which stay in the cache from step to step.
"""

from collections.abc import Sequence

import torch

from hpcgnn import kernels
from hpcgnn.memory.arena import Arena
from hpcgnn.ops.activation_dropout import EluDropout
from hpcgnn.ops.constants import ConstantRows
from hpcgnn.ops.row_tiles import row_tiles, tile_rows


def project(
    x: torch.Tensor | ConstantRows,
    weight: torch.Tensor,
    activation: EluDropout | None,
    out: torch.Tensor,
    arena: Arena,
) -> torch.Tensor:
    """out (n, d_out) = activation(x) W. x: (n, d_in); weight: (d_in, d_out); activation: EluDropout, or None, as of
    ConstantRows; arena: for scratch memory.
    """
    if isinstance(x, ConstantRows):
        for rows, part in x.tiles():
            kernels.project(out[rows], part, weight)
        return out
    for rows, scratch in _tiles(x, activation, 1, arena):
        kernels.project(out[rows], x[rows], weight, None if activation is None else activation.of(rows), scratch)
    return out


def project_backward(
    parts: Sequence[torch.Tensor],
    x: torch.Tensor | ConstantRows,
    weight: torch.Tensor,
    activation: EluDropout | None,
    wanted: bool,
    dots: torch.Tensor | None,
    bias: torch.Tensor | None,
    sums: torch.Tensor | None,
    scaled: bool,
    arena: Arena,
) -> tuple[torch.Tensor | None, torch.Tensor]:
    """(gx or None, g_weight) from the gradient (n, d_out) of the result of `project`, in parts of consecutive rows.

    wanted: whether gx is. With an activation it is written over x. dots, bias, sums, scaled: see
    kernels.project_backward.
    """
    g_weight = weight.new_zeros(weight.shape)
    if isinstance(x, ConstantRows):
        _add_of_constants(g_weight, parts, x, weight)
        return None, g_weight
    gx = (x if activation is not None else arena.empty_like(x)) if wanted else None
    first = 0
    for part in parts:
        of_part = x[first : first + len(part)]
        for rows, scratch in _tiles(of_part, activation, 2, arena):
            at = slice(first + rows.start, first + rows.stop)
            kernels.project_backward(
                gx if gx is None else gx[at],
                g_weight,
                x[at],
                part[rows],
                weight,
                None if activation is None else activation.of(at),
                dots=dots if dots is None else dots[at],
                bias=bias,
                sums=sums,
                scratch=scratch,
                scaled=scaled,
            )
        first += len(part)
    return gx, g_weight


def _add_of_constants(
    g_weight: torch.Tensor, parts: Sequence[torch.Tensor], x: ConstantRows, weight: torch.Tensor
) -> None:
    """g_weight += x^T gradient, the gradient being in parts of consecutive rows, which end within tiles of x."""
    for rows, tile in x.tiles():
        first = 0
        for part in parts:
            start, stop = max(rows.start, first), min(rows.stop, first + len(part))
            if start < stop:
                of_part = part[start - first : stop - first]
                kernels.project_backward(None, g_weight, tile[start - rows.start : stop - rows.start], of_part, weight)
            first += len(part)


def _tiles(
    x: torch.Tensor, activation: EluDropout | None, count: int, arena: Arena
) -> list[tuple[slice, torch.Tensor | None]]:
    """(rows, memory to work in): all rows at once, or as many as stay in the cache."""
    if kernels.one_pass(x.dtype):
        return [(slice(0, len(x)), None)] if len(x) else []
    scratch = None if activation is None else arena.empty(count, min(tile_rows(), len(x)), x.shape[1], dtype=x.dtype)
    return [(rows, scratch) for rows in row_tiles(len(x))]
