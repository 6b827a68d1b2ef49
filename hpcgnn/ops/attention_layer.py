"""A layer of additive attention as one operator: projection, attention, bias, and the activation before it.

It keeps its input h, the projections, and its own output; those of a constant input are computed again for the
gradient. Its output stands in a matrix that has what its gradient will send beside it, [gy | a_dst | top | D], where gy
is times the shares (see ops/additive_attention.py), which stand in the place of D until then, if there are any. A layer
above that is given this output writes the gradient over it, times the shares, and sending it copies nothing. D_i =
<gy_i, y_i> is then beyond computing, so the layer above makes it while it still has both, beside its rows, and the
gradient of the bias in the same pass: as the gradients of two more outputs, `dots` (m, H) and `sums` (F,), which have
no other meaning.
"""

import torch

from hpcgnn import kernels
from hpcgnn.ops.additive_attention import inner_products
from hpcgnn.ops.attention_projection import project, project_backward
from hpcgnn.ops.row_tiles import in_rows


def attention_layer(x, weight, bias, terms, operator, shape, key, p, activation=None):
    """y (m, F) + bias, or (m, width) for averaged heads, from own rows x (n_p, d_in), differentiable. Collective.

    weight: (d_in, F + 2H), to [z | a_src | a_dst]. bias: (F,), or (width,) for averaged heads, or None. operator:
    AdditiveAttention; terms, shape, key, p: see there. activation: None, or what is done to x first (EluDropout); x
    then must be the caller's to give away: its gradient is written over it.
    """
    # What the layer below returned brings along where to leave D and the gradient of its bias. They are left there only
    # where x was given away, and so has no other consumer: else these would be of a part of its gradient.
    below = None if activation is None else getattr(x, "below", None)
    below = below or (None, None, None, None)
    y, dots, sums = _Layer.apply(x, *below, weight, bias, terms, operator, shape, key, p, activation)
    y.below = None if shape.average or bias is None else (dots, sums, bias.detach(), operator.shares(shape))
    return y


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, dots, sums, bias_below, scaled_below, weight, bias, terms, operator, shape, key, p, activation):
        ctx.set_materialize_grads(False)
        n, f, h, arena = operator.num_outputs, shape.columns, shape.heads, operator.arena
        projected = project(x, weight, activation, arena)
        bundle = arena.empty(n, f + (2 if shape.average else 3) * h, dtype=x.dtype)
        into = [
            bundle[:, :f],
            *(bundle[:, f + k * h : f + (k + 1) * h] for k in range(3 if operator.shares(shape) else 2)),
        ]
        y, *_ = operator.forward(projected, shape, key, p, terms, into, None if shape.average else bias)
        if shape.average:
            out = arena.empty(n, shape.width, dtype=x.dtype)
            torch.mean(y.view(n, h, shape.width), 1, out=out)
            if bias is not None:
                out.add_(bias)
        else:
            out = y
        ctx.settings = operator, shape, key, p, activation
        ctx.x, ctx.below = x, None if dots is None else (dots.shape[1], bias_below, scaled_below)
        ctx.projected = projected if ctx.needs_input_grad[0] else None
        ctx.rest = weight, bias, terms, bundle
        return out, out.new_zeros(1).expand(n, h), out.new_zeros(1).expand(f)

    @staticmethod
    def backward(ctx, gy, dots, sums):
        operator, shape, key, p, activation = ctx.settings
        weight, bias, terms, bundle = ctx.rest
        x, projected, arena = ctx.x, ctx.projected, operator.arena
        ctx.x = ctx.projected = ctx.rest = None
        if projected is None:
            projected = project(x, weight, activation, arena)
        sent, g_bias = _bundle(in_rows(gy), dots, sums, bundle, bias, shape, operator.shares(shape), arena)
        del bundle
        own_bias = None if shape.average else bias
        parts, g_terms = operator.from_bundle(sent, projected, shape, key, p, terms, overwrite=True, bias=own_bias)
        del projected, sent
        wanted, dots, sums, bias_below, scaled = ctx.needs_input_grad[0], None, None, None, False
        if wanted and ctx.below:
            heads, bias_below, scaled = ctx.below
            dots, sums = _beside(x, heads), torch.zeros_like(bias_below)
        gx, g_weight = project_backward(parts, x, weight, activation, wanted, dots, bias_below, sums, scaled, arena)
        return gx, dots, sums, None, None, g_weight, g_bias, g_terms, None, None, None, None, None


def _beside(y, heads):
    """The place of the shares, and of D, in the matrix in which the output y (m, F) of a layer of concatenated heads
    stands.
    """
    return y.detach().as_strided((len(y), heads), y.stride(), y.storage_offset() + y.shape[1] + 2 * heads)


def _bundle(gy, dots, sums, bundle, bias, shape, scaled, arena):
    """([gy | a_dst | top | D] of own rows, gy being times the shares, and the gradient of the bias). dots, sums: D and
    that gradient if the layer above has made them, and written gy over the output; else None. bundle: [y | a_dst | top
    | shares, or room for D, unless heads are averaged]. scaled: whether there are shares.
    """
    f, h, width = shape.columns, shape.heads, gy.shape[1]
    if dots is not None:
        # As they are, if autograd has handed on these very tensors and no copies.
        for place, given in ((bundle[:, :f], gy), (bundle[:, f + 2 * h :], dots)):
            if place.data_ptr() != given.data_ptr():
                place.copy_(given)
        return bundle, sums
    # Without a layer above that has taken the output over, somebody may still want to read it.
    sent = arena.empty(len(gy), width + 3 * h, dtype=gy.dtype)
    g_bias = None if bias is None else torch.zeros_like(bias)
    sent[:, width : width + 2 * h] = bundle[:, f : f + 2 * h]
    product = sent[:, width + 2 * h :]
    if not shape.average:
        if scaled:
            product.copy_(bundle[:, f + 2 * h :])
        # The output has the bias in it.
        kernels.elu_gradient(sent[:, :width], gy, None, bundle[:, :f], product, bias, g_bias, scaled)
        return sent, g_bias
    if g_bias is not None:
        kernels.bias_gradient(g_bias, gy)
    torch.div(gy, h, out=sent[:, :width])
    inner_products(product, sent[:, :width], bundle[:, :f], shape, False)
    return sent, g_bias
