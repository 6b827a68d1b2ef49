"""A layer of additive attention as one operator: projection, attention, bias, and the activation before it.

The layer keeps its input h, the projections, and its own output. The projections of a constant input are not kept but
computed again for the gradient. The output is part of a matrix with the rows that the backward pass will send,
[gy | a_dst | top | D]. There gy is times the shares (see additive_attention.py), if there are any; until D is made, the
shares stand in its place.

A layer above that the output is handed over to (handover.py) writes the gradient, times the shares, over the output.
Sending the gradient then copies nothing. But D_i = <gy_i, y_i> cannot be computed any more once y_i is gone. So the
layer above makes D while it has both, and the gradient of the bias in the same pass.
"""

from typing import Any, cast

import torch

from hpcgnn import kernels
from hpcgnn.memory.keeping import Kept
from hpcgnn.ops.activation_dropout import EluDropout
from hpcgnn.ops.additive_attention import AdditiveAttention, AttentionShape, inner_products
from hpcgnn.ops.attention_projection import project, project_backward
from hpcgnn.ops.constants import ConstantRows
from hpcgnn.ops.handover import Handover, Loan
from hpcgnn.ops.row_tiles import in_rows


def attention_layer(
    x: torch.Tensor | ConstantRows | Handover,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    terms: torch.Tensor | None,
    operator: AdditiveAttention,
    shape: AttentionShape,
    key: int,
    p: float,
    *,
    hand_over: bool = False,
) -> torch.Tensor | Handover:
    """y (m, F) + bias, or (m, width) for averaged heads, from own rows x (n_p, d_in), differentiable. Collective.

    x: a tensor, ConstantRows, or a Handover. Its activation (EluDropout) comes first, and its gradient is written over
    its rows. weight: (d_in, F + 2H), to [z | a_src | a_dst]. bias: (F,), or (width,) for averaged heads, or None.
    operator: AdditiveAttention; terms, shape, key, p: see there. hand_over: return y as a Handover.
    """
    activation, (x, below) = (x.activation, x.take(returns_loan=True)) if isinstance(x, Handover) else (None, (x, None))
    lends = hand_over and not shape.average
    if lends and bias is None:
        bias = weight.new_zeros(shape.columns)  # the layer above takes it off again when it makes D
    # What hands rows over to a layer of attention gives them the activation that the layer names.
    elu = cast(EluDropout | None, activation)
    settings = _Settings(operator, shape, key, p, elu, below, lends)
    y = _Layer.apply(x, weight, bias, terms, settings)
    return Handover(y, settings.loan) if hand_over else y


class _Settings:
    """Arguments of a layer other than tensors. below: the Loan that came with its input, or None. loan: its own Loan,
    made by its forward pass where `lends`.
    """

    def __init__(
        self,
        operator: AdditiveAttention,
        shape: AttentionShape,
        key: int,
        p: float,
        activation: EluDropout | None,
        below: Loan | None,
        lends: bool,
    ) -> None:
        self.operator, self.shape, self.key, self.p = operator, shape, key, p
        self.activation, self.below, self.lends = activation, below, lends
        self.loan: Loan | None = None


def _kept(tensor: torch.Tensor, exact: int | None = None) -> Kept:
    """As Arena.keep, where there is no backward pass."""
    return Kept(tensor)


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor | ConstantRows,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        terms: torch.Tensor | None,
        settings: _Settings,
    ) -> torch.Tensor:
        operator, shape, key, p = settings.operator, settings.shape, settings.key, settings.p
        n, f, h, arena = operator.num_outputs, shape.columns, shape.heads, operator.arena
        keep = arena.keep if any(ctx.needs_input_grad) else _kept
        projected = _projected(x, weight, settings.activation, operator)
        bundle = operator.empty_streamed(n, f + (2 if shape.average else 3) * h, x.dtype, transposed=True)
        shares = operator.shares(shape)
        # Not as a view of the bundle: autograd forbids to write to those that an operator has returned.
        rows = bundle.new_empty(0).set_(bundle.untyped_storage(), bundle.storage_offset(), (n, f), bundle.stride())
        into = [rows, *(bundle[:, f + k * h : f + (k + 1) * h] for k in range(3 if shares else 2))]
        y, *_ = operator.forward(projected, shape, key, p, terms, into, None if shape.average else bias)
        if shape.average:
            out = arena.empty(n, shape.width, dtype=x.dtype)
            torch.mean(y.view(n, h, shape.width), 1, out=out)
            if bias is not None:
                out.add_(bias)
        else:
            out = y
        rest = keep(bundle, bundle.shape[1] - f)  # before its parts, which are kept with it
        if settings.lends and bias is not None:
            settings.loan = Loan(keep(y.detach(), 0), keep(bundle[:, f + 2 * h :], 0), bias.detach(), shares)
        wanted = ctx.needs_input_grad[0]
        ctx.settings, ctx.x = settings, keep(x, 0) if wanted and isinstance(x, torch.Tensor) else x
        ctx.projected = keep(projected, 2 * h) if wanted else None
        ctx.rest = weight, bias, terms, rest
        return out

    @staticmethod
    def backward(ctx: Any, gy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        settings, (weight, bias, terms, bundle) = ctx.settings, ctx.rest
        operator, shape, key, p, below = settings.operator, settings.shape, settings.key, settings.p, settings.below
        arena, activation, kept, bundle = operator.arena, settings.activation, ctx.x, bundle.tensor()
        constant = ctx.projected is None
        projected = _projected(kept, weight, activation, operator) if constant else ctx.projected.tensor()
        ctx.x = ctx.projected = ctx.rest = None
        loan, settings.loan = settings.loan, None
        if loan is not None and loan.taken:
            loan.check_return(gy)
            sent, g_bias = bundle, loan.sums
        else:
            sent, g_bias = _bundle(in_rows(gy), bundle, bias, shape, operator)
        del bundle, loan
        own_bias = None if shape.average else bias
        parts, g_terms = operator.from_bundle(sent, projected, shape, key, p, terms, overwrite=True, bias=own_bias)
        del projected, sent
        x, wanted = kept.tensor() if isinstance(kept, Kept) else kept, ctx.needs_input_grad[0]
        asked: tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None, bool] = None, None, None, False
        if wanted and below is not None:
            asked = below.dots.tensor(), below.bias, torch.zeros_like(below.bias), below.scaled
        gx, g_weight = project_backward(parts, x, weight, activation, wanted, *asked, arena)
        if wanted and below is not None:
            below.give_back(asked[2])
            settings.below = None  # its memory is the layer's that lent it
        return gx, g_weight, g_bias, g_terms, None


def _projected(
    x: torch.Tensor | ConstantRows, weight: torch.Tensor, activation: EluDropout | None, operator: AdditiveAttention
) -> torch.Tensor:
    """activation(x) W (n_p, F + 2H), in the memory of the rows that the operator streams forwards."""
    out = operator.empty_streamed(len(x), weight.shape[1], x.dtype)
    project(x, weight, activation, out, operator.arena)
    return out


def _bundle(
    gy: torch.Tensor,
    bundle: torch.Tensor,
    bias: torch.Tensor | None,
    shape: AttentionShape,
    operator: AdditiveAttention,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """([gy | a_dst | top | D] of own rows, gy being times the shares, and the gradient of the bias).

    bundle: [y | a_dst | top | shares, or nothing yet], without the last of these for averaged heads.
    """
    f, h, width, scaled = shape.columns, shape.heads, gy.shape[1], operator.shares(shape)
    # The output was not handed over: somebody may still want to read it.
    sent = operator.empty_streamed(len(gy), width + 3 * h, gy.dtype, transposed=True)
    g_bias = None if bias is None else torch.zeros_like(bias)
    sent[:, width : width + 2 * h] = bundle[:, f : f + 2 * h]
    product = sent[:, width + 2 * h :]
    if not shape.average:
        if scaled:
            product.copy_(bundle[:, f + 2 * h :])
        # The output has the bias in it.
        kernels.elu_gradient(sent[:, :width], gy, None, bundle[:, :f], product, bias=bias, sums=g_bias, scaled=scaled)
        return sent, g_bias
    if g_bias is not None:
        kernels.bias_gradient(g_bias, gy)
    torch.div(gy, h, out=sent[:, :width])
    inner_products(product, sent[:, :width], bundle[:, :f], shape, False)
    return sent, g_bias
