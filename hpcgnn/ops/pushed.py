"""Linear aggregation and additive attention whose gradients are computed where the rows were used, and pushed to their
owners.

The exact operators pull: the owner of a source asks for the gradients of all destinations of its edges. That needs the
rows of *every* neighbour on the other rank. Where a rank has used only some rows of others (a sample), or rows of the
past, the gradient of what it computed is a matter of those rows alone: it is summed here, one row for each row that was
used, and travels back in its place. So forwards and backwards see the same edges, and the gradient is that of the
function that was evaluated (BNS-GCN: Wan et al., MLSys'22; PipeGCN: Wan et al., ICLR'22).

With a sample, which is the same in both directions, `multiply_transposed` is the adjoint of `multiply` of this epoch,
and ops/convolution.py holds as it is. With rows of the past it is not: see ops/stale_convolution.py.

A row that is used costs F numbers forwards and F backwards. In attention it costs F + H forwards; backwards it is
fetched again (F + H), unless the stream has kept it, and F + H go back.

`used` and `push` below are streams with the same rows: over blocks as they are, and over their transposes.
"""

import torch

from hpcgnn.ops.additive_attention import AdditiveAttention, column_ids
from hpcgnn.ops.linear_aggregation import LinearAggregation
from hpcgnn.ops.row_tiles import row_tiles


class PushedAggregation(LinearAggregation):
    """The operator R A S, remote columns times `factor`. Collective in both directions.

    used, push: streams; row_scale (R), source_scale (S): (n_p,) or None.
    """

    def __init__(self, used, push, row_scale, source_scale, factor=1.0):
        super().__init__(used, push, row_scale, source_scale)
        self.factor = factor

    def tiles(self, x, transposed=False, y=None):
        """Yield (rows, y of these rows): all own rows, some at a time, when the last message has come. Collective:
        exhaust it.
        """
        whole = self.multiply_transposed(x) if transposed else self.multiply(x)
        for rows in row_tiles(len(whole)):
            yield rows, whole[rows]

    def multiply(self, x, out=None):
        """y without autograd, into `out` if it is given."""
        y, x = self.arena.empty_like(x) if out is None else out, x.contiguous()
        remote_scale = self._enlarged(self.source_scale, x)
        for block, rows, scale, _ in self.forward_stream(
            x, self.source_scale, "halo_forward", remote_scale=remote_scale
        ):
            block.multiply(rows, y, scale, self.row_scale, accumulate=block.first_column is not None)
        return y

    def multiply_transposed(self, gy):
        """The gradient of x without autograd."""
        total, gy = self.arena.empty_like(gy), gy.contiguous()
        remote_scale = self._enlarged(self.row_scale, gy)
        for block, _, _, back in self.backward_stream(gy[:, :0], None, "halo_backward", total, narrow_back=gy.shape[1]):
            remote = block.first_column is not None
            block.multiply(gy, back, remote_scale if remote else self.row_scale, None, accumulate=remote)
        return total if self.source_scale is None else total.mul_(self.source_scale[:, None])

    def _enlarged(self, scale, like):
        """A scale times `factor`."""
        if self.factor == 1:
            return scale
        return like.new_full((len(like),), self.factor) if scale is None else scale * self.factor


class PushedAttention(AdditiveAttention):
    """As AdditiveAttention, with `remote_logit` added to the logits of remote edges after LeakyReLU.

    used, push: streams; ids, halo_ids: original ids of own nodes, and of the rows that are used; edges: EdgeLists of
    in-edges and of out-edges.
    """

    def __init__(self, used, push, ids, halo_ids, edges, remote_logit=0.0):
        super().__init__(used, push, ids, halo_ids, halo_ids, edges)
        self.remote_logit = remote_logit

    def shares(self, shape):
        """No gradient of a destination is sent."""
        return not shape.average

    def _first_interior(self, stream, terms):
        """One past the last row: no row is done in one pass where only some edges are used."""
        return stream.own.num_rows

    def from_bundle(self, sent, projected, shape, key, p, terms=None, overwrite=False, bias=None):
        """The gradients of `projected` (n_p, F + 2H), in one part, and of terms from sent = [gy | a_dst | top | D] of
        own rows, which is used up.
        """
        n, f, h = len(projected), shape.columns, shape.heads
        top, lowered = sent[:, -2 * h : -h], False
        gradient = torch.zeros_like(projected)
        total, ga_dst = projected.new_zeros(n, f + h), projected.new_zeros(n, h)
        g_terms = None if terms is None else torch.zeros_like(terms)
        rows_of = self.backward_stream(projected[:, : f + h], None, "halo_backward", total, narrow=f, narrow_back=f)
        for block, rows, _, back in rows_of:
            remote = block.first_column is not None
            if remote and not lowered:  # the own block came first
                top -= self.remote_logit
                lowered = True
            dropout = p and (p, key, self.ids, column_ids(block, self.ids, self.backward_ids, len(rows)))
            edges = self.forward_edges if remote else self.backward_edges
            self._spread(back, ga_dst, rows, sent, block, edges, shape, dropout, terms, g_terms, bias=bias)
        gradient[:, : f + h], gradient[:, f + h :] = total, ga_dst
        return (gradient,), g_terms
