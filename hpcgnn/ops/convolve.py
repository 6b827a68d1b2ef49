"""A linear convolution as one operator: y = A(x) W_n + x W_s + b, holding no more than its input and its output.

The aggregate A(x) is not kept for the gradient of W_n, since (A x)^T gy = x^T (A^T gy), and t = A^T gy is needed
anyway:

    gW_n = x^T t        gW_s = x^T gy        gx = t W_n^T + gy W_s^T

This holds for every operator with its own adjoint: of all edges, and of a sample of them. If rows are narrowed on their
way (`--halo-dtype`), A rounds the rows of others and A^T the gradients of others, each by itself. gW_n is then x^T t
with rounded gradients in t, and not (rounded rows)^T gy. It is right up to the rounding. With int8, whose draws
forwards and backwards are independent, it is right in the mean for a given gy.

With delayed rows it does not hold: A was applied to old rows, and the received part of A^T gy belongs to an older gy.
Then the aggregate of the used rows is kept, one matrix (m, d_in) more, and A^T (gy W_n^T) goes back, with the used
weights, as in PipeGCN (Wan et al., ICLR'22, algorithm 1):

    gW_n = (A x_used)^T gy        gW_s = x^T gy        gx = A^T (gy W_n^T) + gy W_s^T

Otherwise a layer keeps x alone. Everything is done for some rows at a time, while they are in the cache. On one rank
neither A(x) nor t ever exists as a whole. If x is the result of an activation in place (see draws.py), the gradient
of that activation's input is written over x, tile after tile. A step then has one matrix per layer. If x is constant,
neither widened features nor dropped ones ever exist as a whole: a tile is widened, and its dropout drawn, in each
direction.

Where a layer widens its input this would stream gy, the wider side: such layers are composed of separate steps
(nn/conv.py).
"""

from typing import Any

import torch

from hpcgnn import kernels
from hpcgnn.memory.arena import Arena, SavedTensor
from hpcgnn.ops.draws import ReluDropout
from hpcgnn.ops.layer_input import ConstantRows, reader
from hpcgnn.ops.linear_aggregation import LinearOperator
from hpcgnn.ops.row_tiles import Cast, read_type, row_tiles, tile_rows, tiles_or_all


class Convolve(torch.autograd.Function):
    """y (m, d_out) of own rows x (n_p, d_in); m = n_p unless the operator computes some rows only. Collective.

    Args:
        x: (n_p, d_in); bfloat16 x with float32 weights gives float32 products and sums. With an activation the caller
            gives x away: it is overwritten. Constant rows are in memory, and d_out < d_in.
        neighbour, own: W_n and W_s (d_in, d_out), d_out <= d_in; own may be None. Of constant rows: see
            `ConstantRows.scaled`.
        bias: (d_out,) or None.
        operator: LinearOperator.
        activation: done to x first, or None.
        kept: dtype of y; None: the dtype of the weights.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor | ConstantRows,
        neighbour: torch.Tensor,
        own: torch.Tensor | None,
        bias: torch.Tensor | None,
        operator: LinearOperator,
        activation: ReluDropout | None = None,
        kept: torch.dtype | None = None,
    ) -> torch.Tensor:
        arena, dtype, outputs = operator.arena, neighbour.dtype, operator.outputs
        x = x.contiguous() if isinstance(x, torch.Tensor) else x
        ctx.operator, ctx.activation, ctx.has_bias = operator, activation, bias is not None
        ctx.weights, ctx.used = (neighbour, own), None
        y = operator.empty_streamed(operator.num_outputs, neighbour.shape[1], kept or dtype, transposed=True)
        first = y.shape[1] < x.shape[1]  # the narrower side is aggregated
        sent = x if isinstance(x, torch.Tensor) else None
        if first:
            sent = operator.empty_streamed(len(x), y.shape[1], x.dtype)
        assert sent is not None, "constant rows are narrowed"
        keeps = operator.old and not first
        at_once = isinstance(x, torch.Tensor) and not keeps and kernels.convolves(x, y, neighbour, own)
        if not at_once:
            read = reader(x, dtype, arena)
            computed = read if outputs is None else reader(x, dtype, arena, outputs)
            results = Cast(arena, y, dtype)
            if first:
                products = Cast(arena, sent, dtype)
        for rows in tiles_or_all(len(x), at_once):
            if activation is not None and isinstance(x, torch.Tensor):
                activation.apply_(x[rows], rows)
            if first and at_once and isinstance(x, torch.Tensor):
                kernels.convolve(sent[rows], x[rows], None, own=neighbour)
            elif first:
                products.write(sent[rows], lambda out: kernels.multiply(out, read(rows), neighbour))
        for part in operator.parts(sent, y=y, by_tiles=not at_once):
            if keeps:
                ctx.used = part.aggregate
            if at_once and isinstance(x, torch.Tensor):
                mine = x[part.rows] if outputs is None else x
                tensors = {"neighbour": None if first else neighbour, "own": own, "bias": bias}
                tensors |= {"outputs": None if outputs is None else outputs[part.rows]}
                kernels.convolve(y[part.rows], mine, part.aggregate, **tensors)
                continue
            for rows, aggregate in part.tiles():

                def result(out: torch.Tensor) -> None:
                    if first:
                        out.copy_(aggregate) if bias is None else torch.add(aggregate, bias, out=out)
                    else:
                        kernels.multiply(out, aggregate, neighbour, bias)
                    if own is not None:
                        kernels.multiply(out, computed(rows), own, add=True)

                results.write(y[rows], result)
        # Written to later: autograd must not watch it.
        ctx.x = arena.keep(x, exact=0) if isinstance(x, torch.Tensor) and ctx.needs_input_grad[0] else x
        return y

    @staticmethod
    def backward(ctx: Any, gy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x = ctx.x.tensor() if isinstance(ctx.x, SavedTensor) else ctx.x
        (neighbour, own), operator, activation = ctx.weights, ctx.operator, ctx.activation
        arena, dtype, used, ctx.x, ctx.used = operator.arena, neighbour.dtype, ctx.used, None, None
        gy, needs_x = gy.contiguous(), ctx.needs_input_grad[0]
        g_neighbour = neighbour.new_zeros(neighbour.shape)
        g_own = None if own is None else own.new_zeros(own.shape)
        g_bias = torch.zeros_like(neighbour[0]) if ctx.has_bias else None
        if used is not None:
            gx = _of_used(ctx, used, x, gy, g_neighbour, g_own, g_bias)
            return gx, g_neighbour, g_own, g_bias, None, None, None
        # What is sent is no wider than x; the gradients of the weights are made from all that there is.
        wider = gy.dtype.itemsize > x.dtype.itemsize
        sent = operator.empty_streamed(*gy.shape, x.dtype, transposed=True).copy_(gy) if wider else gy
        gx = None
        if needs_x:
            gx = x if activation is not None else operator.empty_streamed(*x.shape, x.dtype)
        parts = operator.parts(sent, transposed=True)  # the large sums take their memory before the small ones below
        constant = not isinstance(x, torch.Tensor)
        own_products = kernels.convolves(None if constant else x, gy, sent, neighbour, own)
        between = activation is not None or x.dtype != dtype
        spare = _of_tile(x, dtype, arena) if between and needs_x else None
        picks = operator.outputs is not None and own is not None
        apart = _of_tile(x, dtype, arena) if picks and not constant else None
        if g_bias is not None and own_products and own is None:
            kernels.bias_gradient(g_bias, gy)
        if own_products and not constant:
            scale = None if activation is None or gx is None else activation.scale
            same = {"g_neighbour": g_neighbour, "g_own": g_own, "g_bias": None if g_own is None else g_bias}
            same |= {"neighbour": neighbour, "own": own, "outputs": operator.outputs}
            same |= {"spare": spare, "taken": _of_tile(x, dtype, arena) if picks else None, "apart": apart}
            tile = tile_rows()
            for part in parts:
                of_rows = {"gx": None if gx is None else gx[part.rows], "first": part.rows.start, "memory": part.memory}
                kernels.convolve_backward(gy, x[part.rows], part.aggregate, tile, scale, **of_rows, **same)
            return gx, g_neighbour, g_own, g_bias, None, None, None
        read = reader(x, dtype, arena)
        computed = reader(x, dtype, arena, operator.outputs) if picks else None
        gradients = Cast(arena, gy, read_type(gy, dtype))
        bias_left = None if own_products else g_bias
        for rows, t in (tile for part in parts for tile in part.tiles()):
            mine, place = operator.outputs_of(rows)
            of_x, g = read(rows), gradients.read(gy[mine])
            out = None if gx is None else gx[rows] if spare is None else spare[: len(of_x)]
            kernels.project_backward(out, g_neighbour, of_x, t, neighbour)
            if g_own is None:
                if bias_left is not None:
                    kernels.bias_gradient(bias_left, g)
            elif place is None or computed is None:
                kernels.project_backward(out, g_own, of_x, g, own, y_sums=g_bias, add=needs_x)
            else:
                beside = None if out is None or apart is None else apart[: len(g)]
                kernels.project_backward(beside, g_own, computed(mine), g, own, y_sums=g_bias)
                if out is not None and beside is not None:
                    kernels.add_rows(out, place, beside, distinct=True)
            if activation is not None and gx is not None and out is not None:
                activation.gradient(out, of_x, of_x)
                if of_x.dtype != x.dtype:  # else it is x itself
                    gx[rows].copy_(of_x)
            elif gx is not None and out is not None and spare is not None:
                gx[rows].copy_(out)
        return gx, g_neighbour, g_own, g_bias, None, None, None


def _of_tile(x: torch.Tensor | ConstantRows, dtype: torch.dtype, arena: Arena) -> torch.Tensor:
    """Memory for a tile of rows like those of x."""
    return arena.empty(min(tile_rows(), len(x)), x.shape[1], dtype=dtype)


def _of_used(
    ctx: Any,
    used: torch.Tensor,
    x: torch.Tensor,
    gy: torch.Tensor,
    g_neighbour: torch.Tensor,
    g_own: torch.Tensor | None,
    g_bias: torch.Tensor | None,
) -> torch.Tensor | None:
    """gx, or None where nobody wants it, with the aggregate `used` (m, d_in), which is used up. The other gradients are
    added to.
    """
    (neighbour, own), operator, outputs = ctx.weights, ctx.operator, ctx.operator.outputs
    tiles, needs_x, gx = row_tiles(len(used)), ctx.needs_input_grad[0], None
    spare = operator.arena.empty(tiles[0].stop if tiles else 0, x.shape[1], dtype=x.dtype)
    for rows in tiles:
        out = spare[: rows.stop - rows.start] if needs_x else None
        kernels.project_backward(out, g_neighbour, used[rows], gy[rows], neighbour, y_sums=g_bias)
        if out is not None:
            used[rows] = out  # it has done its work
    if needs_x:
        gx = operator.multiply_transposed(used)
    if g_own is not None:
        for rows in tiles:
            of_x = x[rows] if outputs is None else x.index_select(0, outputs[rows])
            if outputs is None or gx is None:
                kernels.project_backward(None if gx is None else gx[rows], g_own, of_x, gy[rows], own, add=needs_x)
            else:
                kernels.project_backward(spare[: len(of_x)], g_own, of_x, gy[rows], own)
                kernels.add_rows(gx, outputs[rows], spare[: len(of_x)], distinct=True)
    if ctx.activation is None or gx is None:
        return gx
    ctx.activation.gradient(gx, x, x)
    return x
