"""A layer of additive attention as one operator: projection, attention, bias, and the activation before it.

The layer keeps its input h, the projections, and its own output. The projections of a constant input are not kept but
computed again for the gradient. The output is part of a matrix with the rows that the backward pass will send,
[gy | a_dst | top | D]. There gy is times the shares (see additive_attention.py), if there are any; until D is made, the
shares stand in its place.

A layer above that the output is handed over to (handover.py) writes the gradient, times the shares, over the output.
Sending the gradient then copies nothing. But D_i = <gy_i, y_i> cannot be computed any more once y_i is gone. So the
layer above makes D while it has both, and the gradient of the bias in the same pass.

The product with the weights, with the activation before it, is one pass if the kernels can. Otherwise it takes some
rows at a time, which stay in the cache from step to step.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch

from hpcgnn import kernels
from hpcgnn.memory.arena import Arena, SavedTensor
from hpcgnn.ops.additive_attention import AdditiveAttention, Attending, AttentionShape
from hpcgnn.ops.draws import EluDropout
from hpcgnn.ops.handover import BorrowedBuffer, Handover
from hpcgnn.ops.layer_input import ConstantRows
from hpcgnn.ops.row_tiles import in_rows, row_tiles, tile_rows


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
        for rows, part, mask in x.tiles():
            kernels.project(out[rows], part, weight, mask(rows))
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
    below: BorrowedBuffer | None,
    arena: Arena,
) -> tuple[torch.Tensor | None, torch.Tensor]:
    """(gx or None, g_weight) from the gradient (n, d_out) of the result of `project`, in parts of consecutive rows.

    wanted: whether gx is. With an activation it is written over x. below: the BorrowedBuffer that came with x, which
    goes back with it, or None.
    """
    g_weight, dots, bias, sums, scaled = weight.new_zeros(weight.shape), None, None, None, False
    if wanted and below is not None:
        dots, bias, scaled = below.dots.tensor(), below.bias, below.scaled
        sums = torch.zeros_like(bias)
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
    if below is not None and sums is not None:
        below.give_back(sums)
    return gx, g_weight


def _add_of_constants(
    g_weight: torch.Tensor, parts: Sequence[torch.Tensor], x: ConstantRows, weight: torch.Tensor
) -> None:
    """g_weight += x^T gradient, the gradient being in parts of consecutive rows, which end within tiles of x."""
    for rows, tile, mask in x.tiles():
        first = 0
        for part in parts:
            start, stop = max(rows.start, first), min(rows.stop, first + len(part))
            if start < stop:
                of_x, of_part = tile[start - rows.start : stop - rows.start], part[start - first : stop - first]
                kernels.project_backward(None, g_weight, of_x, of_part, weight, mask(slice(start, stop)))
            first += len(part)


def _tiles(
    x: torch.Tensor, activation: EluDropout | None, count: int, arena: Arena
) -> list[tuple[slice, torch.Tensor | None]]:
    """(rows, memory to work in): all rows at once, or as many as stay in the cache."""
    if kernels.one_pass(x.dtype):
        return [(slice(0, len(x)), None)] if len(x) else []
    scratch = None if activation is None else arena.empty(count, min(tile_rows(), len(x)), x.shape[1], dtype=x.dtype)
    return [(rows, scratch) for rows in row_tiles(len(x))]


def attention_layer(
    x: torch.Tensor | ConstantRows | Handover,
    weight: torch.Tensor | None,
    operator: AdditiveAttention,
    how: Attending,
    *,
    hand_over: bool = False,
) -> torch.Tensor | Handover:
    """y (m, F) + bias, or (m, width) for averaged heads, from own rows x (n_p, d_in), differentiable. Collective.

    x: a tensor, ConstantRows, or a Handover. Its activation (EluDropout) comes first, and its gradient is written over
    its rows. weight: (d_in, F + 2H), to [z | a_src | a_dst]; None: a tensor x is that. how: its bias is (width,) for
    averaged heads. hand_over: return y as a Handover.
    """
    activation, (x, below) = (x.activation, x.take(returns_loan=True)) if isinstance(x, Handover) else (None, (x, None))
    lends, bias = hand_over and not how.shape.average, how.bias
    if lends and bias is None:
        bias = torch.zeros(how.shape.columns, dtype=x.dtype)  # the layer above takes it off again when it makes D
    # What hands rows over to a layer of attention gives them the activation that the layer names.
    elu = cast(EluDropout | None, activation)
    settings = _Settings(operator, replace(how, bias=None), elu, below, lends)
    y = _Layer.apply(x, weight, bias, settings)
    return Handover(y, settings.loan) if hand_over else y


@dataclass
class _Settings:
    """Arguments of a layer other than tensors. below: the BorrowedBuffer that came with its input, or None. loan: its
    own BorrowedBuffer, made by its forward pass where `lends`.
    """

    operator: AdditiveAttention
    how: Attending
    activation: EluDropout | None
    below: BorrowedBuffer | None
    lends: bool
    loan: BorrowedBuffer | None = None

    def with_bias(self, bias: torch.Tensor | None) -> Attending:
        """Averaged heads have the bias behind their mean."""
        return replace(self.how, bias=None if self.how.shape.average else bias)


def _kept(tensor: torch.Tensor, exact: int | None = None) -> SavedTensor:
    """As Arena.keep, where there is no backward pass."""
    return SavedTensor(tensor)


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor | ConstantRows,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
        settings: _Settings,
    ) -> torch.Tensor:
        operator, shape = settings.operator, settings.how.shape
        n, f, h, arena = operator.num_outputs, shape.columns, shape.heads, operator.arena
        # Of a projection that is given, nothing is coded.
        keeps = any(ctx.needs_input_grad)
        keep = arena.keep if weight is not None and keeps else _kept
        projected = _projected(x, weight, settings.activation, operator)
        bundle = operator.empty_streamed(n, f + (2 if shape.average else 3) * h, x.dtype, transposed=True)
        shares = operator.shares(shape)
        # Not as a view of the bundle: autograd forbids to write to those that an operator has returned.
        rows = bundle.new_empty(0).set_(bundle.untyped_storage(), bundle.storage_offset(), (n, f), bundle.stride())
        a_dst, top, *share = bundle[:, f:].split(h, 1)
        operator.forward(projected, settings.with_bias(bias), rows, a_dst, top, share[0] if shares else None, keeps)
        out = rows
        if shape.average:
            out = arena.empty(n, shape.width, dtype=x.dtype)
            torch.mean(rows.view(n, h, shape.width), 1, out=out)
            if bias is not None:
                out.add_(bias)
        rest = keep(bundle, bundle.shape[1] - f)  # before its parts, which are kept with it
        if settings.lends and bias is not None:
            settings.loan = BorrowedBuffer(
                keep(rows.detach(), 0), keep(bundle[:, f + 2 * h :], 0), bias.detach(), shares
            )
        wanted = ctx.needs_input_grad[0]
        ctx.settings, ctx.x = settings, keep(x, 0) if wanted and isinstance(x, torch.Tensor) else x
        ctx.projected = keep(projected, 2 * h) if wanted else None
        ctx.rest = weight, bias, rest
        return out

    @staticmethod
    def backward(ctx: Any, gy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        settings, (weight, bias, bundle) = ctx.settings, ctx.rest
        operator, below = settings.operator, settings.below
        arena, activation, kept, bundle = operator.arena, settings.activation, ctx.x, bundle.tensor()
        constant = ctx.projected is None
        projected = _projected(kept, weight, activation, operator) if constant else ctx.projected.tensor()
        ctx.x = ctx.projected = ctx.rest = None
        loan, settings.loan = settings.loan, None
        if loan is not None and loan.taken:
            loan.check_return(gy)
            sent, g_bias = bundle, loan.sums
        else:
            sent, g_bias = _bundle(in_rows(gy), bundle, bias, settings.how.shape, operator)
        del bundle, loan
        parts = operator.from_bundle(sent, projected, settings.with_bias(bias), overwrite=weight is not None)
        del projected, sent
        if weight is None:
            return parts[0], None, g_bias, None
        x, wanted = kept.tensor() if isinstance(kept, SavedTensor) else kept, ctx.needs_input_grad[0]
        gx, g_weight = project_backward(parts, x, weight, activation, wanted, below, arena)
        if wanted:
            settings.below = None  # its memory is the layer's that lent it
        return gx, g_weight, g_bias, None


def _projected(
    x: Any, weight: torch.Tensor | None, activation: EluDropout | None, operator: AdditiveAttention
) -> torch.Tensor:
    """activation(x) W (n_p, F + 2H), in the memory of the rows that the operator streams forwards; or x itself."""
    if weight is None:
        return in_rows(x)
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
    beside = (3 if scaled else 2) * h
    sent[:, width : width + beside] = bundle[:, f : f + beside]
    product = sent[:, width + 2 * h :]
    if not shape.average:
        # The output has the bias in it.
        kernels.elu_gradient(sent[:, :width], gy, None, bundle[:, :f], product, bias=bias, sums=g_bias, scaled=scaled)
        return sent, g_bias
    if g_bias is not None:
        kernels.bias_gradient(g_bias, gy)
    torch.div(gy, h, out=sent[:, :width])
    for rows in row_tiles(len(gy)):  # which stay in the cache from head to head
        of_gy = sent[rows, :width]
        for head in range(h):
            columns = bundle[rows, head * width : (head + 1) * width]
            kernels.elu_gradient(of_gy, of_gy, None, columns, product[rows, head : head + 1])
    return sent, g_bias
