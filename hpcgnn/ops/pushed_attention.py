"""Additive attention whose gradients are computed where the rows were used, and pushed to their owners.

Why: see pushed_aggregation.py. A row that is used costs F + H numbers forwards; backwards it is fetched again (F + H),
unless the stream has kept it, and F + H go back.
"""

from typing import cast

import torch

from hpcgnn.exchange.stream import Returns, Rows
from hpcgnn.ops.additive_attention import AdditiveAttention, AttentionShape, column_ids
from hpcgnn.ops.site import PushedSite
from hpcgnn.ops.streams import RowStream


class PushedAttention(AdditiveAttention):
    """As AdditiveAttention, with `site.added` added to the logits of remote edges after LeakyReLU. site: PushedSite."""

    def __init__(self, site: PushedSite) -> None:
        local, ids = site.local, site.halo_ids
        edges = local.inward.edges, local.outward.edges
        # `from_bundle` below is all that streams backwards, and it gives Returns.
        push = cast(RowStream, site.push)
        super().__init__(site.used, push, local.original_id, ids, ids, edges, local.outputs)
        self.remote_logit = site.added

    def shares(self, shape: AttentionShape) -> bool:
        """No gradient of a destination is sent."""
        return not shape.average

    def _takes_interior(self, terms: torch.Tensor | None) -> bool:
        """No row is done in one pass where only some edges are used."""
        return False

    def from_bundle(
        self,
        sent: torch.Tensor,
        projected: torch.Tensor,
        shape: AttentionShape,
        key: int,
        p: float,
        terms: torch.Tensor | None = None,
        overwrite: bool = False,
        bias: torch.Tensor | None = None,
    ) -> tuple[tuple[torch.Tensor, ...], torch.Tensor | None]:
        """The gradients of `projected` (n_p, F + 2H), in one part, and of terms from sent = [gy | a_dst | top | D] of
        own rows, which is used up.
        """
        n, f, h = len(projected), shape.columns, shape.heads
        top, lowered = sent[:, -2 * h : -h], False
        gradient = torch.zeros_like(projected)
        total, ga_dst = projected.new_zeros(n, f + h), projected.new_zeros(len(sent), h)
        g_terms = None if terms is None else torch.zeros_like(terms)
        old = Rows(projected[:, : f + h], narrow=f)
        for block, rows, _, back in self.backward_stream(old, "halo_backward", Returns(total, f)):
            remote = block.first_column is not None
            if remote and not lowered:  # the own block came first
                top -= self.remote_logit
                lowered = True
            columns = column_ids(block, self.ids, self.backward_ids, len(rows))
            dropout = (p, key, self.output_ids, columns) if p else None
            edges = self.forward_edges if remote else self.backward_edges
            self._spread(back, ga_dst, rows, sent, block, edges, shape, dropout, terms, g_terms, bias=bias)
        gradient[:, : f + h], gradient[:, f + h :] = total, self._placed(ga_dst, n)
        return (gradient,), g_terms
