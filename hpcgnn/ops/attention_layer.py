"""A layer of additive attention as one operator: projection, attention, bias, and the activation before it.

It keeps its input h, the projections, and its own output; those of a constant input are computed again for the gradient. Its
output stands in a matrix that has room for what its gradient will send, [gy | a_dst | lse | D]. Such a layer above writes the
gradient over that output, tile after tile, and sending it copies nothing. D_i = <gy_i, y_i> is then beyond computing, so
the layer above makes it while it still has both, and the gradient of the bias in the same pass: as the gradients of two more
outputs, `dots` (m, H) and `sums` (F,), which have no other meaning.
"""

import torch

from hpcgnn import kernels
from hpcgnn.ops.room import in_rows, row_tiles, tile_rows


def attention_layer(x, weight, bias, terms, operator, shape, key, p, activation=None):
    """y (m, F) + bias, or (m, width) for averaged heads, from own rows x (n_p, d_in), differentiable. Collective.

    weight: (d_in, F + 2H), to [z | a_src | a_dst]. operator: AdditiveAttention; terms, shape, key, p: see there. activation:
    None, or what is done to x first (EluDropout); x then must be the caller's to give away: its gradient is written over it.
    """
    # What the layer below returned brings along where to leave D and the gradient of its bias. They are left there only where x
    # was given away, and so has no other consumer: else these would be of a part of its gradient.
    below = None if activation is None else getattr(x, "below", None)
    y, dots, sums = _Layer.apply(x, *(below or (None, None, None)), weight, bias, terms, operator, shape, key, p, activation)
    y.below = None if shape.average else (dots, sums, bias.detach())
    return y


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, dots, sums, bias_below, weight, bias, terms, operator, shape, key, p, activation):
        ctx.set_materialize_grads(False)
        n, f, h, arena = operator.num_outputs, shape.columns, shape.heads, operator.arena
        projected = _project(x, weight, activation, arena)
        bundle = arena.empty(n, f if shape.average else f + 3 * h, dtype=x.dtype)
        y = bundle[:, :f]
        y, lse = operator.forward(projected, shape, key, p, terms, y, None if shape.average else bias)
        if shape.average:
            out = arena.empty(n, shape.width, dtype=x.dtype)
            torch.mean(y.view(n, h, shape.width), 1, out=out).add_(bias)
        else:
            out = y
        ctx.settings = operator, shape, key, p, activation
        ctx.x, ctx.below = x, None if dots is None else (dots.shape[1], bias_below)
        ctx.projected = projected if ctx.needs_input_grad[0] else None
        ctx.rest = weight, bias, terms, bundle, lse
        return out, out.new_zeros(1).expand(n, h), out.new_zeros(1).expand(f)

    @staticmethod
    def backward(ctx, gy, dots, sums):
        operator, shape, key, p, activation = ctx.settings
        weight, bias, terms, bundle, lse = ctx.rest
        x, projected = ctx.x, ctx.projected
        ctx.x = ctx.projected = ctx.rest = None
        if projected is None:
            projected = _project(x, weight, activation, operator.arena)
        sent, g_bias = _bundle(in_rows(gy), dots, sums, bundle, bias, projected, lse, shape, operator)
        del bundle
        gradient, g_terms = operator.from_bundle(sent, projected, shape, key, p, terms, overwrite=True)
        del projected, sent
        gx, g_weight, dots, sums = _input_gradient(
            gradient, x, weight, activation, ctx.needs_input_grad[0], ctx.below, operator.arena
        )
        return gx, dots, sums, None, g_weight, g_bias, g_terms, None, None, None, None, None


def _project(x, weight, activation, arena):
    projected = arena.empty(len(x), weight.shape[1], dtype=x.dtype)
    spare = None if activation is None else arena.empty(min(tile_rows(), len(x)), x.shape[1], dtype=x.dtype)
    for rows in row_tiles(len(x)):
        part = x[rows]
        if activation is not None:
            part = spare[: len(part)]
            activation.write(x[rows], rows, part)
        kernels.multiply(projected[rows], part, weight)
    return projected


def _bundle(gy, dots, sums, bundle, bias, projected, lse, shape, operator):
    """([gy | a_dst | lse | D] of own rows, the gradient of the bias). dots, sums: D and that gradient if the layer above has made
    them, and written gy over the output; else None.
    """
    n, f, h, width = len(lse), shape.columns, shape.heads, gy.shape[1]
    # Without a layer above that has taken the output over, somebody may still want to read it.
    sent = bundle if dots is not None else operator.arena.empty(n, width + 3 * h, dtype=gy.dtype)
    g_bias = torch.zeros_like(bias) if sums is None else sums
    spare = operator.arena.empty(min(tile_rows(), n), f, dtype=gy.dtype)
    for rows in row_tiles(n):
        part, room = gy[rows], spare[: rows.stop - rows.start]
        if shape.average:
            kernels.bias_gradient(g_bias, part)
            part = part / h
            product = _per_head(part.unsqueeze(1), bundle[rows].view(-1, h, shape.width), room)
        elif dots is None:
            kernels.bias_gradient(g_bias, part)
            torch.sub(bundle[rows, :f], bias, out=room)  # the output has the bias in it, D has not
            product = _per_head(part, room, room, h)
        else:
            product = dots[rows]
        if sent[rows].data_ptr() != part.data_ptr():
            sent[rows, :width] = part
        a_dst = operator.computed(projected[:, f + h :], rows)
        torch.cat([a_dst, lse[rows], product], 1, out=sent[rows, width:])
    return sent, g_bias


def _per_head(a, b, room, heads=None):
    """Σ a b over the columns of each head: (rows, H); room: (rows, F) to work in."""
    room = room.view(*b.shape)
    torch.mul(a, b, out=room)
    return (room if heads is None else room.view(len(room), heads, -1)).sum(-1)


def _input_gradient(gradient, x, weight, activation, wanted, below, arena):
    """(gx or None, g_weight, D of the layer below or None, the gradient of its bias or None) from that of the projections.

    below: (its heads, its bias), or None if x is not the output of such a layer alone.
    """
    g_weight = torch.zeros_like(weight)
    rows_at_most = min(tile_rows(), len(x))
    spare = None if activation is None else arena.empty(rows_at_most, x.shape[1], dtype=x.dtype)
    product = arena.empty(rows_at_most, x.shape[1], dtype=x.dtype) if wanted and activation is not None else None
    dots = sums = bias = None
    if wanted and below:
        heads, bias = below
        dots, sums = arena.empty(len(x), heads, dtype=x.dtype), torch.zeros_like(bias)
    gx = (x if activation is not None else arena.empty_like(x)) if wanted else None
    for rows in row_tiles(len(x)):
        part = x[rows]
        if activation is not None:
            part = spare[: len(part)]
            activation.write(x[rows], rows, part)
        g_weight.addmm_(part.t(), gradient[rows])
        if not wanted:
            continue
        if activation is None:
            kernels.multiply(gx[rows], gradient[rows], weight.t())
            continue
        g = product[: len(part)]
        kernels.multiply(g, gradient[rows], weight.t())
        activation.gradient(g, part, x[rows], rows, None if dots is None else dots[rows], bias, sums)
    return gx, g_weight, dots, sums
