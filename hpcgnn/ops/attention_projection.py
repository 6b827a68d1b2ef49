"""The product of an attention layer's input with its weights, with the activation before it, and backwards all the
gradients: in one pass where the kernels can, else some rows at a time, which stay in the cache from one step to the
next.
"""

from collections.abc import Sequence

import torch

from hpcgnn import kernels
from hpcgnn.memory.arena import Arena
from hpcgnn.ops.activation_dropout import EluDropout
from hpcgnn.ops.row_tiles import row_tiles, tile_rows


def project(
    x: torch.Tensor, weight: torch.Tensor, activation: EluDropout | None, out: torch.Tensor, arena: Arena
) -> torch.Tensor:
    """out (n, d_out) = activation(x) W. x: (n, d_in); weight: (d_in, d_out); activation: EluDropout or None; arena: for
    scratch memory.
    """
    for rows, scratch in _tiles(x, activation, 1, arena):
        kernels.project(out[rows], x[rows], weight, None if activation is None else activation.of(rows), scratch)
    return out


def project_backward(
    parts: Sequence[torch.Tensor],
    x: torch.Tensor,
    weight: torch.Tensor,
    activation: EluDropout | None,
    wanted: bool,
    dots: torch.Tensor | None,
    bias: torch.Tensor | None,
    sums: torch.Tensor | None,
    scaled: bool,
    arena: Arena,
) -> tuple[torch.Tensor | None, torch.Tensor]:
    """(gx or None, g_weight) from the gradient (n, d_out) of what `project` gave, in parts of consecutive rows.

    wanted: whether gx is. With an activation it is written over x. dots, bias, sums, scaled: see
    kernels.project_backward.
    """
    g_weight = weight.new_zeros(weight.shape)
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
                dots if dots is None else dots[at],
                bias,
                sums,
                scratch,
                scaled=scaled,
            )
        first += len(part)
    return gx, g_weight


def _tiles(
    x: torch.Tensor, activation: EluDropout | None, count: int, arena: Arena
) -> list[tuple[slice, torch.Tensor | None]]:
    """(rows, memory to work in): all rows at once, or as many as stay in the cache."""
    if kernels.one_pass(x.dtype):
        return [(slice(0, len(x)), None)] if len(x) else []
    scratch = None if activation is None else arena.empty(count, min(tile_rows(), len(x)), x.shape[1], dtype=x.dtype)
    return [(rows, scratch) for rows in row_tiles(len(x))]
