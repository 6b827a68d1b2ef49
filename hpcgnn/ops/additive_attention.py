"""Additive attention (GAT) by sequential aggregation: one streamed pass each way, no per-edge tensor, nothing
refetched.

Forward, at the owner of the destination i: rows [z_j | a_src_j] stream by; an online softmax per destination and head
(running maximum, running denominator, rescaled sum, as in flash attention) gives y_i = Σ_j α_ij z_j. Only y, the
maximum m, the inverse of the denominator s, and the rank's own z, a_src, a_dst are saved.

Backward, at the owner of the *source* j: rows [gy_i | a_dst_i, lse_i, D_i] stream by along the out-edges, D_i = <gy_i,
y_i> per head, lse_i = m_i + log s_i. With its own z_j the rank recomputes α_ij = exp(e_ij − lse_i). It has gz_j = Σ_i
α_ij gy_i and da_ij = α_ij (<gy_i, z_j> − D_i)·leaky'. Sums of da_ij over i are ga_src_j. The sums over j, one number
per head and row, go back to the owner of i as ga_dst_i.

If features are large, so are m and D, and one edge outweighs the others. Then y_i = z_j to the bit. The sums of the two
inner products are made in the same order. So da_ij is 0, not a rounding error as large as the features. In lse_i
the rounding of m_i would lose log s_i. So m_i travels in its place, and gy_i / s_i for gy_i (also in D_i). Averaged
heads share one gy_i but have their own s_i, and keep lse_i. So do rows that are narrowed on the way, where gy_i may
survive and gy_i / s_i does not.

So a halo row costs F + H numbers forwards and F + 4H backwards (F = heads × width; averaged heads: F/H + 4H). SAR
(Mostafa, MLSys'22, section 3.2) fetches z again and pushes gradients of z back: F + H and 2(F + H).

`PushedAttention` computes gradients where the rows were used, and pushes them to their owners: linear_aggregation.py
gives the reason. A row that is used costs F + H numbers forwards; backwards it is fetched again (F + H), unless the
stream has kept it, and F + H go back.
"""

from dataclasses import dataclass
from typing import cast

import torch

from hpcgnn import kernels
from hpcgnn.exchange.stream import Returns, RowStream, Stream, StreamInput
from hpcgnn.graph.blocks import Block
from hpcgnn.ops.operator_context import PushContext

#: (p, key, ids of rows, ids of columns), as of kernels.attend_forward.
Dropout = tuple[float, int, torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class AttentionShape:
    """heads H, each of `width` columns; slope of LeakyReLU; average: heads are averaged rather than concatenated."""

    heads: int
    width: int
    slope: float = 0.2
    average: bool = False

    @property
    def columns(self) -> int:
        """F = H × width."""
        return self.heads * self.width


@dataclass(frozen=True)
class Attending:
    """How rows attend to each other in a call.

    α_ij = softmax over the in-edges of i of LeakyReLU(a_dst_i + a_src_j); rows without in-edges give zeros.

    Attributes:
        shape: AttentionShape.
        key, p: dropout of α, drawn per edge and head from the stream `key`, after the softmax's denominator.
        bias: (F,), added to y, and taken off where D is made; or None.
    """

    shape: AttentionShape
    key: int = 0
    p: float = 0.0
    bias: torch.Tensor | None = None

    def dropout(self, row_ids: torch.Tensor, column_ids: torch.Tensor) -> Dropout | None:
        """As the kernels take it, of edges between these ids."""
        return (self.p, self.key, row_ids, column_ids) if self.p else None


class AdditiveAttention:
    """The operator of a rank. Collective in both directions.

    Attributes:
        forward_stream, backward_stream: Stream along in-edges and along out-edges.
        ids: int64 (n_p,) original ids of own nodes. Ids decide the dropout of edges.
        forward_ids, backward_ids: original ids of the halo of each direction, in halo order.
        outputs: int32 (m,), increasing, the own rows to compute; None: all, m = n_p.
        remote_logit: added to the logits of remote edges, after LeakyReLU.
        takes_interior: whether interior rows are done in one pass.
    """

    remote_logit, takes_interior = 0.0, True

    def __init__(
        self,
        forward_stream: RowStream[Block],
        backward_stream: RowStream[Block],
        ids: torch.Tensor,
        forward_ids: torch.Tensor,
        backward_ids: torch.Tensor,
        outputs: torch.Tensor | None = None,
    ) -> None:
        self.forward_stream, self.backward_stream, self.outputs = forward_stream, backward_stream, outputs
        self.ids, self.forward_ids, self.backward_ids = ids, forward_ids, backward_ids
        self.output_ids = ids if outputs is None else ids[outputs]
        self._source_ids = forward_stream.of_columns(ids)
        self._destination_ids = backward_stream.of_columns(self.output_ids)
        self.arena = forward_stream.buffers.arena

    def empty_streamed(self, rows: int, width: int, dtype: torch.dtype, transposed: bool = False) -> torch.Tensor:
        """An uninitialised tensor (rows, width) whose rows are going to be streamed forwards, or backwards if
        `transposed`. By all ranks alike.
        """
        return (self.backward_stream if transposed else self.forward_stream).empty(rows, width, dtype)

    def forward(
        self,
        projected: torch.Tensor,
        how: Attending,
        y: torch.Tensor,
        a_dst: torch.Tensor,
        top: torch.Tensor,
        share: torch.Tensor | None = None,
        keeps: bool = True,
    ) -> None:
        """Write y (m, F), top and share (m, H), without autograd. A backward pass `keeps` a_dst (m, H) as well.

        projected: [z | a_src | a_dst] (n_p, F + 2H). top, share: the maximum and the inverse of the denominator, or,
        unless `shares(shape)`, the log-sum-exp and None.
        """
        shape, bias = how.shape, how.bias
        n, f, h = self.num_outputs, shape.columns, shape.heads
        denominator = self.arena.empty(n, h, dtype=projected.dtype) if share is None else share
        inner = self._first_interior(self.forward_stream)
        sent = StreamInput(projected[:, : f + h], narrow=f, pieces=not self.remote_logit, interior=self.takes_interior)
        unfinished = y[:inner], top[:inner], denominator[:inner]
        if inner:
            kernels.attend_begin(*unfinished)
        of_rows = self._computed(projected[:, f + h :])
        a_dst = a_dst.copy_(of_rows) if keeps else of_rows
        shifted = False
        for each in self.forward_stream(sent, "halo_forward"):
            at, complete = each.at, each.complete
            columns = column_ids(each.block, self._source_ids, self.forward_ids, len(each.rows))
            if self.remote_logit and each.block.first_column is not None and not shifted:
                # The own block comes first: with its logits lowered instead, the softmax is the same.
                top -= self.remote_logit
                shifted = True
            dropout = how.dropout(self.output_ids[at], columns)
            kernels.attend_forward(
                y[at],
                top[at],
                denominator[at],
                a_dst[at],
                each.rows,
                each.block.indptr,
                each.block.indices,
                heads=h,
                slope=shape.slope,
                rows=each.block.rows,
                dropout=dropout,
                complete=complete,
                bias=bias if complete else None,
            )
        if inner:
            kernels.attend_finish(*unfinished, top[:inner], bias, None if share is None else share[:inner])
        if share is None and keeps and inner < n:
            top[inner:] -= denominator[inner:].log_()  # the inverse
        if shifted:
            top += self.remote_logit

    def from_bundle(
        self, sent: torch.Tensor, projected: torch.Tensor, how: Attending, overwrite: bool = False
    ) -> tuple[torch.Tensor, ...]:
        """The gradient of `projected` in parts of consecutive rows.

        sent: [gy | a_dst | top | D] of own rows; gy is times the share if there is one. overwrite: whether the gradient
        may replace `projected`; otherwise it is one part.

        The gradient of a row needs no row of `projected` but its own. So the gradients of interior rows, made in one
        pass, replace these rows. The other gradients are sums until the last message has come.
        """
        stream, f, h = self.backward_stream, how.shape.columns, how.shape.heads
        inner, own = self._first_interior(stream), projected[:, : f + h]
        if overwrite:
            gradient, outer = projected, cast(Stream, stream).empty_outer(f + 2 * h, projected.dtype)
            parts = (outer, gradient[inner:]) if inner < len(gradient) else (outer,)
        else:
            gradient = self.arena.empty_like(projected)
            outer, parts = gradient[:inner], (gradient,)
        sums = outer[:, : f + h].zero_()
        ga_dst = self.arena.empty(len(sent), h, dtype=projected.dtype).zero_()
        rows_of = StreamInput(sent, narrow=sent.shape[1] - 3 * h, pieces=True, interior=True)
        for each in stream(rows_of, "halo_backward", Returns(ga_dst)):
            columns = column_ids(each.block, self._destination_ids, self.backward_ids, len(each.rows))
            dropout = how.dropout(columns, self.ids[each.at])
            assert each.back is not None, "Returns were given"
            to = gradient[each.at, : f + h] if each.complete else sums[each.at]
            _spread((to, each.back), (own[each.at], each.rows), each.block, how, dropout, each.complete)
        of_parts = self._placed(ga_dst, len(projected)).split([len(part) for part in parts])
        for part, of_part in zip(parts, of_parts, strict=True):
            part[:, f + h :] = of_part
        return parts

    def _first_interior(self, stream: RowStream[Block]) -> int:
        """The first of the rows that are done in one pass."""
        # Interior rows are done in one pass along a Stream alone.
        return cast(Stream, stream).edges.first_interior if self.takes_interior else stream.own.num_rows

    def shares(self, shape: AttentionShape) -> bool:
        """Whether the maximum and the inverse of the denominator are kept apart, and gradients sent times the
        latter.
        """
        # Pushed attention, which has other streams, has a `shares` of its own.
        return not shape.average and cast(Stream, self.backward_stream).wire.kind is None

    @property
    def num_outputs(self) -> int:
        """m."""
        return self.forward_stream.own.num_rows

    def _computed(self, x: torch.Tensor) -> torch.Tensor:
        """The rows of x (n_p, …) that are computed."""
        return x if self.outputs is None else x[self.outputs]

    def _placed(self, of_computed: torch.Tensor, num_rows: int) -> torch.Tensor:
        """The gradients (n_p, H) of all own rows from the gradients of computed ones (m, H)."""
        if self.outputs is None:
            return of_computed
        gradient = self.arena.empty(num_rows, of_computed.shape[1], dtype=of_computed.dtype).zero_()
        gradient[self.outputs] = of_computed
        return gradient


def _spread(
    sums: tuple[torch.Tensor, torch.Tensor],
    given: tuple[torch.Tensor, torch.Tensor],
    block: Block,
    how: Attending,
    dropout: Dropout | None,
    complete: bool = False,
) -> None:
    """Add the part of a block's edges to `sums`, which `complete` makes the first of anew.

    Args:
        sums: the gradients of [z | a_src] of the sources (rows of the block, F + H), and of a_dst of the destinations
            (columns, H).
        given: the first as they are, and [gy | a_dst | top | D] of the destinations.
        block: the edges.
        how: the call; dropout: of these edges.
        complete: the block has all edges of its rows. Their gradients may then stand in the place of the rows.
    """
    (gradient, ga_dst), (own, sent), shape = sums, given, how.shape
    kernels.attend_backward(
        gradient[:, : shape.columns],
        gradient[:, shape.columns :],
        ga_dst,
        own,
        sent,
        block.indptr,
        block.indices,
        heads=shape.heads,
        slope=shape.slope,
        shared=shape.average,
        rows=block.rows,
        dropout=dropout,
        complete=complete,
        bias=how.bias,
        returns=block.returns,
    )


def column_ids(block: Block, own_ids: torch.Tensor, halo_ids: torch.Tensor, count: int) -> torch.Tensor:
    """The original ids of a block's columns. own_ids: ids of the own block's columns."""
    return own_ids if block.first_column is None else halo_ids[block.first_column : block.first_column + count]


class PushedAttention(AdditiveAttention):
    """As AdditiveAttention, with `site.added` added to the logits of remote edges after LeakyReLU. site:
    PushContext.
    """

    takes_interior = False  # where only some edges are used

    def __init__(self, site: PushContext) -> None:
        local, ids = site.local, site.halo_ids
        super().__init__(site.used, site.push, local.original_id, ids, ids, local.outputs)
        self.remote_logit = site.added

    def shares(self, shape: AttentionShape) -> bool:
        """No gradient of a destination is sent."""
        return not shape.average

    def from_bundle(
        self, sent: torch.Tensor, projected: torch.Tensor, how: Attending, overwrite: bool = False
    ) -> tuple[torch.Tensor, ...]:
        """The gradient of `projected` (n_p, F + 2H), in one part, from sent = [gy | a_dst | top | D] of own rows, which
        is used up.
        """
        n, f, h = len(projected), how.shape.columns, how.shape.heads
        top, lowered = sent[:, -2 * h : -h], False
        gradient = torch.zeros_like(projected)
        total, ga_dst = projected.new_zeros(n, f + h), projected.new_zeros(len(sent), h)
        old = StreamInput(projected[:, : f + h], narrow=f)
        for block, rows, _, back, *_ in self.backward_stream(old, "halo_backward", Returns(total, f)):
            if block.first_column is not None and not lowered:  # the own block came first
                top -= self.remote_logit
                lowered = True
            columns = column_ids(block, self.ids, self.backward_ids, len(rows))
            assert back is not None, "Returns were given"
            _spread((back, ga_dst), (rows, sent), block, how, how.dropout(self.output_ids, columns))
        gradient[:, : f + h], gradient[:, f + h :] = total, self._placed(ga_dst, n)
        return (gradient,)
