"""A linear convolution as one operator: y = A(x) W_n + x W_s + b, holding no more than its input and its output.

The aggregate A(x) is not kept for the gradient of W_n, since (A x)^T gy = x^T (A^T gy), and t = A^T gy is needed
anyway:

    gW_n = x^T t        gW_s = x^T gy        gx = t W_n^T + gy W_s^T

This holds for every operator with its own adjoint: of all edges, and of a sample of them. If rows are narrowed on their
way (`--halo-dtype`), A rounds the rows of others and A^T the gradients of others, each by itself. gW_n is then x^T t
with rounded gradients in t, and not (rounded rows)^T gy. It is right up to the rounding. With int8, whose draws
forwards and backwards are independent, it is right in the mean for a given gy. With delayed rows it does not hold: see
stale_convolution.py.

So a layer keeps x alone. Everything is done for some rows at a time, while they are in the cache. On one rank neither
A(x) nor t ever exists as a whole. If x is the result of an activation in place (see activation_dropout.py), the
gradient of that activation's input is written over x, tile after tile. A step then has one matrix per layer.

Where a layer widens its input this would stream gy, the wider side: such layers are composed of separate steps
(nn/conv.py).
"""

from typing import TYPE_CHECKING, Any

import torch

from hpcgnn import kernels
from hpcgnn.memory.keeping import Kept
from hpcgnn.ops.activation_dropout import ReluDropout
from hpcgnn.ops.row_tiles import Cast, read_type, tile_rows, tiles_or_all

if TYPE_CHECKING:
    from hpcgnn.ops.linear_operator import LinearOperator


class Convolve(torch.autograd.Function):
    """y (m, d_out) of own rows x (n_p, d_in); m = n_p unless the operator computes some rows only. Collective.

    Args:
        x: (n_p, d_in); bfloat16 x with float32 weights gives float32 products and sums. With an activation the caller
            gives x away: it is overwritten.
        neighbour, own: W_n and W_s (d_in, d_out), d_out <= d_in; own may be None.
        bias: (d_out,) or None.
        operator: LinearOperator.
        activation: done to x first, or None.
        kept: dtype of y; None: the dtype of the weights.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        neighbour: torch.Tensor,
        own: torch.Tensor | None,
        bias: torch.Tensor | None,
        operator: "LinearOperator",
        activation: ReluDropout | None = None,
        kept: torch.dtype | None = None,
    ) -> torch.Tensor:
        x, arena, dtype = x.contiguous(), operator.arena, neighbour.dtype
        ctx.operator, ctx.activation, ctx.has_bias = operator, activation, bias is not None
        ctx.weights = neighbour, own
        y = operator.empty_streamed(operator.num_outputs, neighbour.shape[1], kept or dtype, transposed=True)
        first = y.shape[1] < x.shape[1]  # the narrower side is aggregated
        sent = operator.empty_streamed(len(x), y.shape[1], x.dtype) if first else x
        at_once = kernels.convolves(x, y, neighbour, own)
        inputs, products = Cast(arena, x, read_type(x, dtype)), Cast(arena, sent, dtype)
        for rows in tiles_or_all(len(x), at_once):
            if activation is not None:
                activation.apply_(x[rows], rows)
            if first:
                products.write(sent[rows], lambda out: kernels.multiply(out, inputs.read(x[rows]), neighbour))
        results, taken = Cast(arena, y, dtype), _Taken(x, operator, inputs)
        for part in operator.parts(sent, y=y):
            if at_once:
                mine = x[part.rows] if operator.outputs is None else x
                outputs = None if operator.outputs is None else operator.outputs[part.rows]
                weight = None if first else neighbour
                tensors = {"neighbour": weight, "own": own, "bias": bias, "outputs": outputs}
                tensors |= {"memory": part.memory, "taken": taken.memory}
                kernels.convolve(y[part.rows], mine, part.aggregate, tile_rows(), **tensors)
                continue
            for rows, aggregate in part.tiles():

                def result(out: torch.Tensor) -> None:
                    if first:
                        out.copy_(aggregate) if bias is None else torch.add(aggregate, bias, out=out)
                    else:
                        kernels.multiply(out, aggregate, neighbour, bias)
                    if own is not None:
                        kernels.multiply(out, taken(rows), own, add=True)

                results.write(y[rows], result)
        # Written to later: autograd must not watch it.
        ctx.x = arena.keep(x, exact=0) if ctx.needs_input_grad[0] else Kept(x)
        return y

    @staticmethod
    def backward(ctx: Any, gy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, (neighbour, own), operator, activation = ctx.x.tensor(), ctx.weights, ctx.operator, ctx.activation
        arena, dtype, ctx.x = operator.arena, neighbour.dtype, None
        gy = gy.contiguous()
        # What is sent is no wider than x; the gradients of the weights are made from all that there is.
        wider = gy.element_size() > x.element_size()
        sent = operator.empty_streamed(*gy.shape, x.dtype, transposed=True).copy_(gy) if wider else gy
        needs_x = ctx.needs_input_grad[0]
        g_neighbour = neighbour.new_zeros(neighbour.shape)
        g_own = None if own is None else own.new_zeros(own.shape)
        g_bias = torch.zeros_like(neighbour[0]) if ctx.has_bias else None
        gx = None
        if needs_x:
            gx = x if activation is not None else operator.empty_streamed(*x.shape, x.dtype)
        parts = operator.parts(sent, transposed=True)  # the large sums take their memory before the small ones below
        at_once = kernels.convolves(x, gy, sent, neighbour, own)
        between = activation is not None or x.dtype != dtype
        spare = arena.empty(min(tile_rows(), len(x)), x.shape[1], dtype=dtype) if between and needs_x else None
        apart = None
        if operator.outputs is not None and own is not None:
            apart = arena.empty(min(tile_rows(), len(x)), x.shape[1], dtype=dtype)
        inputs = Cast(arena, x, read_type(x, dtype))
        gradients = Cast(arena, gy, dtype if own is None else read_type(gy, dtype))
        taken = _Taken(x, operator, Cast(arena, x, read_type(x, dtype)))
        if at_once:
            if g_bias is not None and g_own is None:
                kernels.bias_gradient(g_bias, gy)
            scale = None if activation is None or gx is None else activation.scale
            same = {"g_neighbour": g_neighbour, "g_own": g_own, "g_bias": None if g_own is None else g_bias}
            same |= {"neighbour": neighbour, "own": own, "outputs": operator.outputs}
            same |= {"spare": spare, "taken": taken.memory, "apart": apart}
            for part in parts:
                of_rows = {"gx": None if gx is None else gx[part.rows], "first": part.rows.start, "memory": part.memory}
                kernels.convolve_backward(gy, x[part.rows], part.aggregate, tile_rows(), scale, **of_rows, **same)
            return gx, g_neighbour, g_own, g_bias, None, None, None
        for rows, t in (tile for part in parts for tile in part.tiles()):
            mine, place = operator.outputs_of(rows)
            read, g = inputs.read(x[rows]), gradients.read(gy[mine])
            out = None if gx is None else gx[rows] if spare is None else spare[: len(read)]
            kernels.project_backward(out, g_neighbour, read, t, neighbour)
            if g_own is None:
                if g_bias is not None:
                    kernels.bias_gradient(g_bias, g)
            elif place is None or apart is None:  # both or none
                kernels.project_backward(out, g_own, read, g, own, y_sums=g_bias, add=needs_x)
            else:
                beside = None if out is None else apart[: len(g)]
                kernels.project_backward(beside, g_own, taken(mine), g, own, y_sums=g_bias)
                if out is not None and beside is not None:
                    kernels.add_rows(out, place, beside, distinct=True)
            if activation is not None and gx is not None:
                activation.gradient(out, read, read)
                inputs.store(gx[rows], read)
            elif gx is not None and spare is not None:
                gx[rows].copy_(out)
        return gx, g_neighbour, g_own, g_bias, None, None, None


class _Taken:
    """The rows of x that an operator computes, some at a time, to compute with; where it computes all, none is
    moved.
    """

    def __init__(self, x: torch.Tensor, operator: "LinearOperator", cast: Cast) -> None:
        self._x, self._outputs, self._cast = x, operator.outputs, cast
        self.memory: torch.Tensor | None = None
        if self._outputs is not None:
            self.memory = operator.arena.empty(min(tile_rows(), len(x)), x.shape[1], dtype=x.dtype)

    def __call__(self, rows: slice) -> torch.Tensor:
        """x at outputs[rows]: valid until the next."""
        if self._outputs is None or self.memory is None:  # both or none
            return self._cast.read(self._x[rows])
        out = self.memory[: rows.stop - rows.start]
        return self._cast.read(torch.index_select(self._x, 0, self._outputs[rows], out=out))
