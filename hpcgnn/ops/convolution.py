"""A linear convolution as one operator: y = A(x) W_n + x W_s + b, holding no more than its input and its output.

The aggregate A(x) is not kept for the gradient of W_n, since (A x)^T gy = x^T (A^T gy), and t = A^T gy is needed anyway:

    gW_n = x^T t        gW_s = x^T gy        gx = t W_n^T + gy W_s^T

So a layer keeps x alone. Everything is done for some rows at a time, while they are in the cache; on one rank neither A(x)
nor t ever exists as a whole. Where x is the result of an activation in place (see activation.py), the gradient of that
activation's input is written over x, tile after tile: a step then has one matrix per layer, whatever is done to it.

Where a layer widens its input this would stream gy, the wider side: such layers are composed of separate steps (nn/conv.py).
"""

import torch

from hpcgnn.ops.linear import TILE_ROWS, row_tiles


def convolve(x, neighbour, own, bias, operator, activation=None):
    """y (m, d_out) of own rows x (n_p, d_in), differentiable; m = n_p unless the operator computes some rows only. Collective.

    neighbour, own: weights W_n and W_s (d_in, d_out), d_out <= d_in; own may be None. bias: (d_out,). operator:
    LinearAggregation.
    activation: None, or what is to be done to x first; x then must be the caller's to give away: it is overwritten.
    """
    return _Convolve.apply(x, neighbour, own, bias, operator, activation)


def combine(parts, bias, arena, outputs=None):
    """Σ_k dropout_k(x_k) W_k + b for constant inputs: (m, d_out), differentiable in the weights. Local.

    parts: [(x_k (n_p, d_k), W_k (d_k, d_out), drop_k)]; drop_k(x, rows, out): writes what dropout leaves of these rows of the
    output to `out`, or None. outputs: int32 (m,), the rows to compute; None: all. Nothing is kept: masks are drawn again for
    the gradient.
    """
    inputs, weights, drops = zip(*parts)
    return _Combine.apply(inputs, drops, arena, outputs, bias, *weights)


class _Convolve(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, neighbour, own, bias, operator, activation):
        x = x.contiguous()
        ctx.operator, ctx.activation = operator, activation
        ctx.x, ctx.weights = x, (neighbour, own)  # x is written to: autograd must not watch it
        y = operator.arena.empty(operator.num_outputs, neighbour.shape[1], dtype=x.dtype)
        first = y.shape[1] < x.shape[1]  # the narrower side is aggregated
        sent = operator.arena.empty(len(x), y.shape[1], dtype=x.dtype) if first else x
        for rows in row_tiles(len(x)):
            if activation is not None:
                activation.apply_(x[rows], rows)
            if first:
                torch.mm(x[rows], neighbour, out=sent[rows])
        taken = _Taken(x, operator)
        for rows, aggregate in operator.tiles(sent):
            if first:
                torch.add(aggregate, bias, out=y[rows])
            else:
                torch.addmm(bias, aggregate, neighbour, out=y[rows])
            if own is not None:
                y[rows].addmm_(taken(x, rows), own)
        return y

    @staticmethod
    def backward(ctx, gy):
        x, (neighbour, own), operator, activation = ctx.x, ctx.weights, ctx.operator, ctx.activation
        gy = gy.contiguous()
        needs_x = ctx.needs_input_grad[0]
        g_neighbour, g_own = torch.zeros_like(neighbour), None if own is None else torch.zeros_like(own)
        g_bias = torch.zeros_like(neighbour[0])
        gx = None
        if needs_x:
            gx = x if activation is not None else operator.arena.empty_like(x)
        spare = None
        for rows, t in operator.tiles(gy, transposed=True):
            part = x[rows]
            if spare is None:  # not before t: it would take a bite of the space that t is going to need
                spare, taken = operator.arena.empty(*part.shape, dtype=x.dtype), _Taken(x, operator)
            mine, place = operator.outputs_of(rows)
            g_neighbour.addmm_(part.t(), t)
            g_bias += gy[mine].sum(0)
            if own is not None:
                g_own.addmm_(taken(x, mine).t(), gy[mine])
            if not needs_x:
                continue
            out = gx[rows] if activation is None else spare[: len(part)]
            torch.mm(t, neighbour.t(), out=out)
            if own is not None:
                if place is None:
                    out.addmm_(gy[mine], own.t())
                else:
                    out.index_add_(0, place, torch.mm(gy[mine], own.t(), out=taken.room(mine)))
            if activation is not None:
                activation.gradient(out, part, part)
        ctx.x = None
        return gx, g_neighbour, g_own, g_bias, None, None


class _Taken:
    """The rows of x that an operator computes, some at a time; where it computes all of them, nothing is copied."""

    def __init__(self, x, operator):
        self._outputs = operator.outputs
        if self._outputs is not None:
            self._room = operator.arena.empty(min(TILE_ROWS, len(x)), x.shape[1], dtype=x.dtype)

    def __call__(self, x, rows):
        """x at outputs[rows]: valid until the next."""
        if self._outputs is None:
            return x[rows]
        return torch.index_select(x, 0, self._outputs[rows], out=self.room(rows))

    def room(self, rows):
        """The memory for so many rows."""
        return self._room[: rows.stop - rows.start]


class _Combine(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inputs, drops, arena, outputs, bias, *weights):
        ctx.constants, ctx.widths = (inputs, drops, arena, outputs), [len(w) for w in weights]
        count = len(inputs[0]) if outputs is None else len(outputs)
        y = arena.empty(count, weights[0].shape[1], dtype=weights[0].dtype)
        for rows, parts in _dropped(*ctx.constants):
            torch.addmm(bias, parts[0], weights[0], out=y[rows])
            for part, weight in zip(parts[1:], weights[1:]):
                y[rows].addmm_(part, weight)
        return y

    @staticmethod
    def backward(ctx, gy):
        g_bias = gy.new_zeros(gy.shape[1])
        g_weights = [gy.new_zeros(width, gy.shape[1]) for width in ctx.widths]
        for rows, parts in _dropped(*ctx.constants):
            g_bias += gy[rows].sum(0)
            for part, g_weight in zip(parts, g_weights):
                g_weight.addmm_(part.t(), gy[rows])
        return None, None, None, None, g_bias, *g_weights


def _dropped(inputs, drops, arena, outputs):
    """Yield (rows, the inputs' rows after dropout); valid only until the next."""
    tiles = row_tiles(len(inputs[0]) if outputs is None else len(outputs))
    spares = [
        arena.empty(tiles[0].stop if tiles else 0, x.shape[1], dtype=x.dtype) if drop or outputs is not None else None
        for x, drop in zip(inputs, drops)
    ]
    for rows in tiles:
        parts = []
        for x, drop, spare in zip(inputs, drops, spares):
            room = None if spare is None else spare[: rows.stop - rows.start]
            part = x[rows] if outputs is None else torch.index_select(x, 0, outputs[rows], out=room)
            if drop:
                drop(part, rows, room)
                part = room
            parts.append(part)
        yield rows, parts
